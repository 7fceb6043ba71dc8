#include "monitor/followed_run.h"

#include <chrono>
#include <optional>
#include <thread>

#include "journal/newest_report.h"

namespace ptqwatch::internal {
namespace {

constexpr std::chrono::seconds kTimeToWrite{2};

}  // namespace

MonitorStatus FollowedRun::status() const {
  const absl::StatusOr<RunStatus> run = run_->Status();
  MonitorStatus status = run.ok() ? run->monitor : MonitorStatus();
  status.server = {};
  return status;
}

void FollowedRun::AwaitReport(int64_t sequence) const {
  const auto until = std::chrono::steady_clock::now() + kTimeToWrite;
  while (sequence > 0 && std::chrono::steady_clock::now() < until) {
    const auto newest = latest();
    if (newest != nullptr && newest->report.sequence >= sequence) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::shared_ptr<const AnalyzedReport> FollowedRun::latest() const {
  absl::StatusOr<std::optional<AnalyzedReport>> newest = ReadNewestReport(run_dir_);
  if (!newest.ok() || !*newest) return nullptr;
  return std::make_shared<const AnalyzedReport>(**std::move(newest));
}

}  // namespace ptqwatch::internal
