#include "base/worker.h"

#include <semaphore.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/process_end.h"
#include "base/status_macros.h"
#include "base/thread.h"

namespace ptqwatch::internal {
namespace {

constexpr std::chrono::seconds kTimeAtEnd{1};

}  // namespace

struct Worker::State {
  explicit State(Hooks h) : hooks(std::move(h)) { sem_init(&wake, 0, 0); }
  ~State() { sem_destroy(&wake); }

  Hooks hooks;
  // A POSIX semaphore: posting takes one atomic operation, plus one system call if the thread
  // sleeps, and no lock.
  sem_t wake;
  std::atomic<bool> stopping{false};
  std::atomic<std::thread::id> id{};
  Thread thread;
  Mutex mutex;
  CondVar ended_changed;
  bool ended ABSL_GUARDED_BY(mutex) = false;
};

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(Hooks hooks) {
  auto state = std::make_shared<State>(std::move(hooks));
  PTQWATCH_ASSIGN_OR_RETURN(state->thread,
                            StartThread(
                                state->hooks.name, [state] { Run(state); }, ClosureStackBytes()));
  return std::unique_ptr<Worker>(new Worker(std::move(state)));
}

Worker::~Worker() { Stop(std::chrono::seconds(2)); }

void Worker::Run(std::shared_ptr<State> state) {
  state->id.store(std::this_thread::get_id(), std::memory_order_relaxed);
  try {
    if (state->hooks.thread_init) state->hooks.thread_init();
  } catch (...) {
    Log(Severity::kError, "the monitor thread could not be set up; measuring may be slow or fail");
  }
  while (true) {
    while (sem_wait(&state->wake) != 0 && errno == EINTR) {
    }
    if (state->stopping.load(std::memory_order_acquire)) break;
    state->hooks.job();
  }
  if (state->hooks.thread_end) state->hooks.thread_end();
  // Releases the job's objects here, rather than when the last owner of the state lets go.
  state->hooks.job = nullptr;
  state->hooks.thread_init = nullptr;
  state->hooks.thread_end = nullptr;
  MutexLock lock(state->mutex);
  state->ended = true;
  state->ended_changed.SignalAll();
}

bool Worker::IsCurrentThread() const noexcept {
  return state_->id.load(std::memory_order_relaxed) == std::this_thread::get_id();
}

void Worker::Wake() noexcept { sem_post(&state_->wake); }

bool Worker::Stop(std::chrono::milliseconds deadline) {
  if (!state_->thread.joinable()) {
    MutexLock lock(state_->mutex);
    return state_->ended;
  }
  const auto until = std::chrono::steady_clock::now() + deadline;
  state_->stopping.store(true, std::memory_order_release);
  Wake();
  bool ended = false;
  {
    MutexLock lock(state_->mutex);
    while (!state_->ended && state_->ended_changed.WaitUntil(state_->mutex, until)) {
    }
    ended = state_->ended;
  }
  if (ended) {
    state_->thread.Join();
    return true;
  }
  state_->thread.Detach();
  // Objects that the thread uses are destroyed when the process ends, so it gets a little more
  // time, and after that blocks at its next checkpoint. Leaked like the thread.
  (void)new AtProcessEnd([state = state_] {
    const auto last = std::chrono::steady_clock::now() + kTimeAtEnd;
    MutexLock lock(state->mutex);
    while (!state->ended && state->ended_changed.WaitUntil(state->mutex, last)) {
    }
  });
  return false;
}

}  // namespace ptqwatch::internal
