#include "base/worker.h"

#include <pthread.h>
#include <semaphore.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/signals.h"
#include "base/strings.h"
#include "base/thread_priority.h"

namespace ptqwatch::internal {

struct Worker::State {
  explicit State(Hooks h) : hooks(std::move(h)) { sem_init(&wake, 0, 0); }
  ~State() { sem_destroy(&wake); }

  Hooks hooks;
  // A POSIX semaphore: posting is one atomic operation and, when the thread sleeps, one system
  // call; no lock.
  sem_t wake;
  std::atomic<bool> stopping{false};
  std::thread thread;
  Mutex mutex;
  CondVar ended_changed;
  bool ended ABSL_GUARDED_BY(mutex) = false;
};

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(Hooks hooks) {
  auto state = std::make_shared<State>(std::move(hooks));
  BlockSignals blocked;
  try {
    state->thread = std::thread(&Worker::Run, state);
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        internal::StrCat("cannot start the monitor thread: ", error.what()));
  }
  return std::unique_ptr<Worker>(new Worker(std::move(state)));
}

Worker::~Worker() { Stop(std::chrono::seconds(2)); }

void Worker::Run(std::shared_ptr<State> state) {
  pthread_setname_np(pthread_self(), state->hooks.name.substr(0, 15).c_str());
  SetThreadPriority(ThreadPriority::kBatch);
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
  // What the job owns goes here, not when the last holder of the state happens to let go.
  state->hooks.job = nullptr;
  state->hooks.thread_init = nullptr;
  MutexLock lock(state->mutex);
  state->ended = true;
  state->ended_changed.SignalAll();
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
    state_->thread.join();
  } else {
    state_->thread.detach();
  }
  return ended;
}

}  // namespace ptqwatch::internal
