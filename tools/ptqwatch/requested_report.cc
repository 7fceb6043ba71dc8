#include "requested_report.h"

namespace ptqwatch::internal {
namespace {

// After this time without a step, prints what the command is waiting for.
constexpr std::chrono::seconds kMaxQuietTime(10);

// Number of due snapshots that failed; a request is not tried again after a failure.
int64_t FailedSnapshots(const MonitorStatus& status) {
  return status.snapshots[static_cast<size_t>(SnapshotResult::kFailed)] +
         status.snapshots[static_cast<size_t>(SnapshotResult::kSkippedMismatch)];
}

}  // namespace

RequestedReport::RequestedReport(const MonitorStatus& before, std::chrono::nanoseconds deadline,
                                 Clock* clock, Terminal* terminal)
    : first_step_(before.step.value_or(INT64_MIN)),
      deadline_(deadline),
      clock_(clock),
      terminal_(terminal),
      last_step_time_(clock->Monotonic()) {}

bool RequestedReport::OnReport(const AnalyzedReport& analyzed, int64_t) {
  const Report& report = analyzed.report;
  // The last snapshot of a run answers a request that came after the last step.
  const bool requested =
      report.trigger == SnapshotTrigger::kRequest || report.trigger == SnapshotTrigger::kFinish;
  if (!requested || report.step < first_step_) return true;
  report_ = analyzed;
  return false;
}

void RequestedReport::OnStatus(const RunStatus& run) {
  const MonitorStatus& status = run.monitor;
  if (!status_.has_value()) {
    failed_before_ = FailedSnapshots(status);
  } else if (status.steps_total != status_->steps_total) {
    last_step_time_ = clock_->Monotonic();
  }
  status_ = status;
  failed_ = FailedSnapshots(status) > failed_before_;
}

void RequestedReport::OnNotice(std::string_view text) { terminal_->Notice(text); }

bool RequestedReport::OnTick(bool) {
  if (!noticed_ && status_.has_value() && clock_->Monotonic() - last_step_time_ >= kMaxQuietTime) {
    noticed_ = true;
    terminal_->Notice("the run makes no steps; the snapshot is taken at the next one");
  }
  return !failed_ && clock_->Monotonic() < deadline_ && !terminal_->closed();
}

}  // namespace ptqwatch::internal
