#include "end_of_run.h"

#include <string>

#include "base/strings.h"
#include "printable.h"
#include "ptqwatch/run_source.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kHint = "; --keep waits for the next attempt";

}  // namespace

bool EndOfRun::OnReport(const AnalyzedReport& report, int64_t missed) {
  seen_ = report.report.sequence;
  quiet_ticks_ = -1;
  ended_by_view_ = !view_->OnReport(report, missed);
  return !ended_by_view_;
}

void EndOfRun::OnEvent(const Event& event) {
  quiet_ticks_ = -1;
  view_->OnEvent(event);
}

void EndOfRun::OnStatus(const RunStatus& run) {
  view_->OnStatus(run);
  const MonitorStatus& status = run.monitor;
  last_sequence_ = status.last_sequence;
  if (!seen_) seen_ = last_sequence_;
  failure_ = absl::OkStatus();
  const std::string reason = Printable(status.health_reason);
  if (status.health == Health::kInert) {
    failure_ = absl::FailedPreconditionError(StrCat("the monitor is inert: ", reason, kHint));
    return;
  }
  if (status.health != Health::kSilent) {
    seen_alive_ = true;
    silent_since_.reset();
    return;
  }
  const std::chrono::nanoseconds now = clock_->Monotonic();
  if (!silent_since_) {
    silent_since_ = now;
    if (seen_alive_) view_->OnNotice(StrCat("waiting for the run: ", reason));
  }
  if (!seen_alive_ || now - *silent_since_ >= patience_) {
    failure_ = absl::UnavailableError(StrCat("the run died: ", reason, kHint));
  }
}

bool EndOfRun::OnTick(bool connected) {
  ++quiet_ticks_;
  if (!view_->OnTick(connected)) {
    failure_ = absl::OkStatus();
    ended_by_view_ = true;
    return false;
  }
  // A status may arrive between the last reports and events.
  return failure_.ok() || seen_.value_or(0) < last_sequence_ || quiet_ticks_ < 2;
}

}  // namespace ptqwatch::internal
