#include "notices/alert_notices.h"

#include <utility>

#include "absl/status/status.h"
#include "analysis/alert_text.h"
#include "base/guard.h"
#include "base/strings.h"

namespace ptqwatch::internal {

AlertNotices::AlertNotices(VerdictState before, Callback on_alert, CancelToken cancel)
    : on_alert_(std::move(on_alert)), cancel_(std::move(cancel)), announced_(before) {}

void AlertNotices::Note(const AnalyzedReport& report, Publish publish) {
  const Verdict& verdict = report.verdict;
  if (verdict.state == VerdictState::kUnknown) return;
  const VerdictState before = std::exchange(announced_, verdict.state);
  const VerdictState called = std::exchange(called_, verdict.state);
  const Severity severity = IsAlarm(verdict.state) ? Severity::kWarning : Severity::kInfo;
  if (const std::string message = AlertText(before, verdict); !message.empty()) {
    Log(severity, message);
    publish(severity, message);
  }
  if (IsAlarm(verdict.state) && verdict.state != called) Call(report);
}

void AlertNotices::Call(const AnalyzedReport& report) noexcept {
  // Stop may be waiting for this thread, or may have timed out and let the trainer go.
  if (!on_alert_ || cancel_.cancelled()) return;
  const absl::Status called =
      Guard("MonitorOptions.on_alert threw", absl::StatusCode::kInternal, [&] {
        on_alert_(report);
        return absl::OkStatus();
      });
  if (!called.ok()) threw_(Severity::kError, Message(called));
}

}  // namespace ptqwatch::internal
