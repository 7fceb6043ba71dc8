#include "monitor/shard_monitor.h"

#include <signal.h>

#include <thread>
#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "monitor/shard_rank.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookForMeasurer{20};
constexpr std::chrono::milliseconds kLookInFinish{2};
// How long Finish waits for a process that measures: the pause before a new one, and its start.
constexpr std::chrono::seconds kLongestAbsence{120};

}  // namespace

absl::StatusOr<std::unique_ptr<ShardMonitor>> ShardMonitor::Start(
    std::unique_ptr<ProcessTrainer> trainer, std::string run_dir, const ShardPlace& place,
    std::chrono::milliseconds start_timeout) {
  const auto until = steady_clock::now() + start_timeout;
  std::unique_ptr<ShardMonitor> monitor(
      new ShardMonitor(std::move(trainer), std::move(run_dir), place, until));
  while (monitor->page().answers.ready == 0) {
    if (const std::string problem = ShardProblem(place); !problem.empty()) {
      return absl::FailedPreconditionError(problem);
    }
    if (steady_clock::now() >= until) {
      Log(Severity::kWarning,
          "the monitor of this host's first rank is not ready; training starts without it");
      break;
    }
    std::this_thread::sleep_for(kLookForMeasurer);
  }
  return monitor;
}

ShardMonitor::ShardMonitor(std::unique_ptr<ProcessTrainer> trainer, std::string run_dir,
                           const ShardPlace& place, steady_clock::time_point expected)
    : FollowedRun(std::move(trainer), std::move(run_dir)),
      place_(place),
      expected_(expected),
      at_end_([this] { this->trainer().Withdraw(); }) {}

absl::Status ShardMonitor::creation_status() const {
  if (page().answers.ready != 0 || stopped()) return absl::OkStatus();
  const std::string problem = ShardProblem(place_);
  if (!problem.empty()) return absl::FailedPreconditionError(problem);
  if (steady_clock::now() < expected_) return absl::OkStatus();
  return absl::FailedPreconditionError("this host's first rank has no monitor that measures");
}

absl::Status ShardMonitor::Finish(std::chrono::milliseconds timeout, const CancelToken& cancel) {
  if (stopped()) return absl::FailedPreconditionError("Finish after Stop");
  const Page::Answers& answers = page().answers;
  const auto deadline = steady_clock::now() + timeout;
  auto alive = steady_clock::now();
  while (true) {
    if (const std::optional<absl::Status> finished = trainer().FollowFinish()) {
      AwaitReport(answers.sequence);
      return *finished;
    }
    const auto now = steady_clock::now();
    const pid_t process = answers.ready;
    if (cancel.cancelled()) return absl::CancelledError("Finish was cancelled");
    if (process != 0 && kill(process, 0) == 0) alive = now;
    if (now >= deadline || now - alive > kLongestAbsence) {
      return absl::DeadlineExceededError(process == 0
                                             ? "no process measures"
                                             : "the process that measures did not finish in time");
    }
    std::this_thread::sleep_for(kLookInFinish);
  }
}

absl::Status ShardMonitor::Stop(std::chrono::milliseconds /*deadline*/) {
  if (BeginStop()) trainer().Withdraw();
  return absl::OkStatus();
}

std::string ShardMonitor::Describe() const {
  return StrCat("rank ", place_.rank,
                " copies its part of the model, which the first rank of this ",
                "host has measured into '", run_dir(), "'\n");
}

}  // namespace ptqwatch::internal
