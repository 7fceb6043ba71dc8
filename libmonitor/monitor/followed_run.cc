#include "monitor/followed_run.h"

#include <optional>

#include "journal/newest_report.h"

namespace ptqwatch::internal {

MonitorStatus FollowedRun::status() const {
  const absl::StatusOr<RunStatus> run = run_->Status();
  return run.ok() ? run->monitor : MonitorStatus();
}

std::shared_ptr<const AnalyzedReport> FollowedRun::latest() const {
  absl::StatusOr<std::optional<AnalyzedReport>> newest = ReadNewestReport(run_dir_);
  if (!newest.ok() || !*newest) return nullptr;
  return std::make_shared<const AnalyzedReport>(**std::move(newest));
}

}  // namespace ptqwatch::internal
