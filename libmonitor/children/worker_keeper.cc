#include "children/worker_keeper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "children/spawn.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How often the process is looked at if the kernel has no pidfds.
constexpr milliseconds kLookWithoutPidfd{250};
constexpr int kLowestPriority = 19;

std::string EndText(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return StrCat("exit status ", info.si_status);
  return StrCat("signal ", info.si_status);
}

}  // namespace

// State shared by the object and its thread.
struct WorkerKeeper::Shared {
  Shared(Command command_in, std::function<void()> ended_in, const Timing& timing_in)
      : command(std::move(command_in)),
        ended(std::move(ended_in)),
        timing(timing_in),
        wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Shared() {
    if (wake >= 0) close(wake);
  }

  void Run();
  // Runs one process until it has ended and been waited for. Returns how it ended.
  std::string RunOnce(const std::string& reason, bool& again);
  std::string WaitForEnd(pid_t process, bool& again);
  // Waits until `file` (-1: none) is readable, Stop has something new to say, or `until`.
  void Wait(int file, steady_clock::time_point until) const;
  bool stopping() const {
    MutexLock lock(mutex);
    return kill_at.has_value();
  }

  const Command command;
  const std::function<void()> ended;
  const Timing timing;
  const int wake;

  mutable Mutex mutex;
  mutable CondVar changed;
  State state ABSL_GUARDED_BY(mutex);
  std::optional<steady_clock::time_point> kill_at ABSL_GUARDED_BY(mutex);  // set by Stop
};

void WorkerKeeper::Shared::Wait(int file, steady_clock::time_point until) const {
  pollfd waits[] = {{.fd = wake, .events = POLLIN, .revents = 0},
                    {.fd = file, .events = POLLIN, .revents = 0}};
  const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now()).count();
  poll(waits, 2, static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(wake, &count, sizeof(count));
}

std::string WorkerKeeper::Shared::WaitForEnd(pid_t process, bool& again) {
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  const absl::Cleanup close_it = [&] {
    if (pidfd >= 0) close(pidfd);
  };
  bool killed = false;
  while (true) {
    siginfo_t info{};
    // By pid, because the trainer has children of its own. It may have waited for this one
    // (ECHILD).
    if (waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG) != 0) {
      if (errno == EINTR) continue;
      if (pidfd < 0 || errno != ECHILD) return "an unknown status";
      pollfd gone = {.fd = pidfd, .events = POLLIN, .revents = 0};
      if (poll(&gone, 1, 0) != 0) return "an unknown status";
    } else if (info.si_pid != 0) {
      again = info.si_code != CLD_EXITED || info.si_status != command.final_status;
      return EndText(info);
    }
    auto until = steady_clock::now() +
                 (pidfd >= 0 ? milliseconds(std::chrono::minutes(1)) : kLookWithoutPidfd);
    {
      MutexLock lock(mutex);
      if (kill_at && !killed) until = std::min(until, *kill_at);
      if (kill_at && !killed && steady_clock::now() >= *kill_at) {
        kill(process, SIGKILL);
        killed = true;
        until = steady_clock::now() + kLookWithoutPidfd;
      }
    }
    Wait(pidfd, until);
  }
}

std::string WorkerKeeper::Shared::RunOnce(const std::string& reason, bool& again) {
  SpawnOptions options = {.program = command.program,
                          .arguments = command.arguments,
                          .environment = command.environment,
                          .files = command.files,
                          .new_session = true};
  if (!reason.empty()) options.environment.push_back(StrCat("PTQWATCH_REPLACES=", reason));
  pid_t process = 0;
  if (const int error = Spawn(options, &process); error != 0) {
    return StrCat("'", command.program, "' could not be started: ", strerror(error));
  }
  {
    MutexLock lock(mutex);
    state.process = process;
    changed.SignalAll();
  }
  return WaitForEnd(process, again);
}

void WorkerKeeper::Shared::Run() {
  milliseconds pause = timing.first_pause;
  std::string reason;
  while (true) {
    const auto begun = steady_clock::now();
    bool again = true;
    const std::string end = RunOnce(reason, again);
    ended();
    {
      MutexLock lock(mutex);
      state.process = 0;
      state.end = end;
      state.over = !again || kill_at.has_value();
      changed.SignalAll();
      if (state.over) return;
    }
    if (steady_clock::now() - begun >= timing.long_life) pause = timing.first_pause;
    reason = StrFormat("the process that measures ended (%s); another one starts %.3g s later", end,
                       InSeconds(pause));
    Log(Severity::kError, reason);
    const auto next = steady_clock::now() + pause;
    pause = std::min(2 * pause, timing.longest_pause);
    while (!stopping() && steady_clock::now() < next) Wait(-1, next);
    MutexLock lock(mutex);
    if (kill_at) {
      state.over = true;
      changed.SignalAll();
      return;
    }
    ++state.restarts;
    // Inherited by the process: training goes on while it starts.
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowestPriority);
  }
}

absl::StatusOr<std::unique_ptr<WorkerKeeper>> WorkerKeeper::Start(Command command,
                                                                  std::function<void()> ended,
                                                                  const Timing& timing) {
  auto shared = std::make_shared<Shared>(std::move(command), std::move(ended), timing);
  if (shared->wake < 0) return absl::ResourceExhaustedError("no descriptor is left");
  std::unique_ptr<WorkerKeeper> keeper(new WorkerKeeper(shared));
  PTQWATCH_ASSIGN_OR_RETURN(keeper->thread_,
                            StartThread("ptqw-worker", [shared] { shared->Run(); }));
  return keeper;
}

WorkerKeeper::State WorkerKeeper::state() const {
  MutexLock lock(shared_->mutex);
  return shared_->state;
}

void WorkerKeeper::Stop(milliseconds deadline) {
  if (!process_.here()) return;
  {
    MutexLock lock(shared_->mutex);
    shared_->kill_at = steady_clock::now() + deadline;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(shared_->wake, &one, sizeof(one));
  thread_.Join();
}

WorkerKeeper::~WorkerKeeper() { Stop(milliseconds(0)); }

}  // namespace ptqwatch::internal
