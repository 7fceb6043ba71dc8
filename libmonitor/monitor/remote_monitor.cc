#include "monitor/remote_monitor.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "monitor/shard_monitor.h"

extern char** environ;

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLook{2};
constexpr std::chrono::seconds kRemoteTimeAtEnd{2};
// The process ends its own wait at the deadline and then answers.
constexpr std::chrono::seconds kTimeToAnswer{2};

absl::Status CheckOptions(const MonitorOptions& options) {
  if (options.run_dir.empty()) {
    return absl::InvalidArgumentError(
        "MonitorOptions.run_dir is empty: a process of its own (MonitorOptions.process) measures "
        "into a run directory");
  }
  const ProcessOptions& process = *options.process;
  for (const auto& [name, time] : {std::pair("start_timeout", process.start_timeout),
                                   std::pair("longest_silence", process.longest_silence)}) {
    if (time.count() >= 0) continue;
    return absl::InvalidArgumentError(
        StrCat("MonitorOptions.process.", name, " = ", time.count(), " ms: must not be negative"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ProgramOf(const ProcessOptions& options) {
  std::error_code error;
  const std::filesystem::path path = options.program.empty()
                                         ? std::filesystem::read_symlink("/proc/self/exe", error)
                                         : std::filesystem::absolute(options.program, error);
  if (!error && access(path.c_str(), X_OK) == 0) return path.string();
  return absl::NotFoundError(StrCat("MonitorOptions.process.program = '", options.program,
                                    "': there is no such program that may be run"));
}

milliseconds Left(steady_clock::time_point until) {
  return std::max(milliseconds(0),
                  std::chrono::duration_cast<milliseconds>(until - steady_clock::now()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MonitorPart>> RemoteMonitor::Start(
    std::unique_ptr<Subject> subject, const MonitorOptions& placed, const MonitorOptions& given,
    const std::optional<ShardRank>& shard) {
  PTQWATCH_RETURN_IF_ERROR(CheckOptions(placed));
  const ProcessOptions& process = *placed.process;
  // The server writes there, too, and may be faster than the process.
  std::error_code error;
  std::filesystem::create_directories(placed.run_dir, error);
  if (error) {
    return absl::UnavailableError(
        StrCat("MonitorOptions.run_dir = '", placed.run_dir, "': ", error.message()));
  }
  PTQWATCH_ASSIGN_OR_RETURN(
      std::unique_ptr<ProcessTrainer> trainer,
      ProcessTrainer::Create(
          std::move(subject), placed,
          {.run_dir = given.run_dir,
           .shard = shard ? std::optional(shard->place) : std::nullopt,
           .rank = given.rank,
           .ranks = given.ranks,
           .training_threads =
               placed.training_threads > 0 ? placed.training_threads : at::get_num_threads(),
           .longest_silence_ms = process.longest_silence.count()}));
  if (shard && !shard->measures) {
    return ShardMonitor::Start(std::move(trainer), placed.run_dir, shard->place,
                               process.start_timeout);
  }
  std::unique_ptr<RemoteMonitor> monitor(new RemoteMonitor(std::move(trainer), placed.run_dir));
  PTQWATCH_RETURN_IF_ERROR(monitor->StartProcess(process, placed.measuring_threads));
  const absl::Status ready = monitor->AwaitReady(steady_clock::now() + process.start_timeout, {});
  if (absl::IsDeadlineExceeded(ready)) {
    Log(Severity::kWarning, StrCat(ready, "; training starts without it"));
  } else if (!ready.ok()) {
    return ready;
  }
  monitor->at_end_.emplace([self = monitor.get()] { self->Stop(kRemoteTimeAtEnd).IgnoreError(); });
  return monitor;
}

RemoteMonitor::~RemoteMonitor() {
  Stop(milliseconds(0)).IgnoreError();
  if (pidfd_ >= 0) close(pidfd_);
}

absl::Status RemoteMonitor::StartProcess(const ProcessOptions& options, int threads) {
  WorkerKeeper::Command command{.arguments = options.arguments,
                                .files = {trainer().file(), trainer().wake()},
                                .final_status = kFailedStatus};
  PTQWATCH_ASSIGN_OR_RETURN(command.program, ProgramOf(options));
  // As in the monitor thread.
  const std::vector<std::string> own = {
      StrCat(kTrainerVariable, "=", getpid()), StrCat("OMP_NUM_THREADS=", threads),
      StrCat("MKL_NUM_THREADS=", threads), StrCat(kReplacesVariable, "=")};
  command.environment = own;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const bool replaced = std::any_of(own.begin(), own.end(), [&](std::string_view set) {
      return text.starts_with(set.substr(0, set.find('=') + 1));
    });
    if (!replaced) command.environment.emplace_back(text);
  }
  command.environment.erase(command.environment.begin() + 3);  // the keeper sets it
  // Threads that wait for each other leave their cores to training.
  if (getenv("OMP_WAIT_POLICY") == nullptr && getenv("GOMP_SPINCOUNT") == nullptr) {
    command.environment.emplace_back("OMP_WAIT_POLICY=passive");
  }
  // By syscall, because pidfd_open needs glibc 2.36.
  pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  if (pidfd_ >= 0) command.files.push_back(pidfd_);
  PTQWATCH_ASSIGN_OR_RETURN(
      worker_, WorkerKeeper::Start(std::move(command), [this] { trainer().WorkerEnded(); }, {}));
  return absl::OkStatus();
}

bool RemoteMonitor::ready() const {
  const pid_t process = page().answers.ready.load(std::memory_order_acquire);
  return process != 0 && process == worker_->state().process;
}

absl::Status RemoteMonitor::Failure() const {
  const WorkerKeeper::State state = worker_->state();
  // One that has not measured at all would hardly do so the next time.
  const bool never = page().answers.ready == 0 && !state.end.empty();
  if (stopped() || (!state.over && !never)) return absl::OkStatus();
  const std::string failure = page().answers.failure.data();
  return absl::FailedPreconditionError(
      failure.empty() ? StrCat("the process that measures ended (", state.end, ")") : failure);
}

absl::Status RemoteMonitor::creation_status() const { return Failure(); }

absl::Status RemoteMonitor::AwaitReady(steady_clock::time_point until, const CancelToken& cancel) {
  while (!ready()) {
    PTQWATCH_RETURN_IF_ERROR(Failure());
    if (cancel.cancelled()) return absl::CancelledError("Finish was cancelled");
    if (steady_clock::now() >= until) {
      return absl::DeadlineExceededError("the process that measures is not ready");
    }
    std::this_thread::sleep_for(kLook);
  }
  return absl::OkStatus();
}

void RemoteMonitor::AddIdle(int64_t change) noexcept {
  page().requests.idle.fetch_add(change);
  trainer().WakeWorker();
}

std::optional<absl::Status> RemoteMonitor::FinishOnce(steady_clock::time_point deadline,
                                                      const CancelToken& cancel) {
  const pid_t process = page().answers.ready.load();
  const int64_t number = page().requests.finish.load() + 1;
  page().requests.finish_ms = Left(deadline).count();
  page().requests.finish.store(number, std::memory_order_release);
  trainer().WakeWorker();
  while (page().answers.finished.load(std::memory_order_acquire) != number) {
    trainer().ServeFinish();
    if (cancel.cancelled() && page().requests.cancel.exchange(number) != number) {
      trainer().WakeWorker();
    }
    if (worker_->state().process != process) return std::nullopt;
    if (steady_clock::now() >= deadline + kTimeToAnswer) {
      return absl::DeadlineExceededError("the process that measures did not answer");
    }
    std::this_thread::sleep_for(kLook);
  }
  const absl::Status answer(page().answers.code.load(), page().answers.reason.data());
  AwaitReport(page().answers.sequence);
  return answer;
}

absl::Status RemoteMonitor::Finish(milliseconds timeout, const CancelToken& cancel) {
  if (stopped()) return absl::FailedPreconditionError("Finish after Stop");
  const auto deadline = steady_clock::now() + timeout;
  while (true) {
    PTQWATCH_RETURN_IF_ERROR(AwaitReady(deadline, cancel));
    if (const std::optional<absl::Status> finished = FinishOnce(deadline, cancel)) return *finished;
  }
}

absl::Status RemoteMonitor::Stop(milliseconds deadline) {
  MutexLock lock(stop_mutex_);
  if (worker_ == nullptr || !BeginStop()) return absl::OkStatus();
  trainer().Withdraw();
  const bool asked = ready() && deadline.count() > 0;
  page().requests.stop_ms = deadline.count() * 4 / 5;
  trainer().WakeWorker();
  worker_->Stop(asked ? deadline : milliseconds(0));
  if (!asked || worker_->state().end != "signal 9") return absl::OkStatus();
  return absl::DeadlineExceededError(
      "the process that measures did not stop in time, and was killed");
}

std::string RemoteMonitor::Describe() const {
  return StrCat("measured by process ", worker_->state().process, " into '", run_dir(), "'\n");
}

MonitorStatus RemoteMonitor::status() const {
  MonitorStatus status = FollowedRun::status();
  MutexLock lock(mutex_);
  status.server = server_.status;
  return status;
}

void RemoteMonitor::SetServer(const ServerStatus& server, pid_t process) {
  MutexLock lock(mutex_);
  server_ = {.status = server, .process = process};
  page().server.Write(server_);
}

void RemoteMonitor::AnnounceServer(bool failed, const std::string& message) {
  MutexLock lock(mutex_);
  server_.message = message;
  server_.failed = failed;
  page().server.Write(server_);
}

}  // namespace ptqwatch::internal
