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
// How long Finish waits for another process that measures.
constexpr std::chrono::seconds kLongestAbsence{30};

}  // namespace

absl::StatusOr<std::unique_ptr<ShardMonitor>> ShardMonitor::Start(
    std::unique_ptr<ProcessTrainer> trainer, std::string run_dir, const ShardPlace& place,
    std::chrono::milliseconds start_timeout) {
  std::unique_ptr<ShardMonitor> monitor(
      new ShardMonitor(std::move(trainer), std::move(run_dir), place));
  const auto until = steady_clock::now() + start_timeout;
  while (monitor->page().answers.ready == 0) {
    if (const absl::Status status = monitor->creation_status(); !status.ok()) return status;
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
                           const ShardPlace& place)
    : FollowedRun(std::move(trainer), std::move(run_dir)),
      place_(place),
      at_end_([this] { this->trainer().Withdraw(); }) {}

absl::Status ShardMonitor::creation_status() const {
  if (page().answers.ready != 0 || stopped_) return absl::OkStatus();
  const std::string problem = ShardProblem(place_);
  return problem.empty() ? absl::OkStatus() : absl::FailedPreconditionError(problem);
}

absl::Status ShardMonitor::Finish(std::chrono::milliseconds timeout, const CancelToken& cancel) {
  if (stopped_) return absl::FailedPreconditionError("Finish after Stop");
  Page::Answers& answers = page().answers;
  if (answers.ready == 0) {
    return absl::FailedPreconditionError("the monitor of this host's first rank is not ready");
  }
  const int64_t wanted = ++finishes_;
  const auto deadline = steady_clock::now() + timeout;
  auto alive = steady_clock::now();
  while (answers.finished.load(std::memory_order_acquire) < wanted) {
    trainer().ServeFinish();
    const auto now = steady_clock::now();
    if (cancel.cancelled()) return absl::CancelledError("Finish was cancelled");
    if (now >= deadline) {
      return absl::DeadlineExceededError("the process that measures did not finish in time");
    }
    if (kill(answers.ready, 0) == 0) alive = now;
    if (now - alive > kLongestAbsence) {
      return absl::FailedPreconditionError("the process that measures has ended");
    }
    std::this_thread::sleep_for(kLookInFinish);
  }
  return absl::OkStatus();
}

absl::Status ShardMonitor::Stop(std::chrono::milliseconds /*deadline*/) {
  if (!stopped_.exchange(true)) trainer().Withdraw();
  return absl::OkStatus();
}

std::string ShardMonitor::Describe() const {
  return StrCat("rank ", place_.rank,
                " copies its part of the model; this host's first rank has it ", "measured into '",
                run_dir(), "'\n");
}

}  // namespace ptqwatch::internal
