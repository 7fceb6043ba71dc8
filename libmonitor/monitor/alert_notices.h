#ifndef PTQWATCH_MONITOR_ALERT_NOTICES_H_
#define PTQWATCH_MONITOR_ALERT_NOTICES_H_

#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "base/log.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Tells when the verdict becomes an alarm, another alarm, or no alarm any more. A report whose
/// verdict is unknown says nothing and changes nothing. One thread's.
class AlertNotices {
 public:
  using Callback = std::function<void(const AnalyzedReport&)>;
  using Publish = absl::FunctionRef<void(Severity, std::string message)>;

  /// `before`: what the attempts before ended with, and have announced. `on_alert` may be empty; it
  /// is not called once `cancel` was cancelled.
  AlertNotices(VerdictState before, Callback on_alert, CancelToken cancel);

  /// After the report was published: the log and `publish` say what has begun or ended, and
  /// on_alert is called for what has begun. It has heard of nothing from the attempts before, so it
  /// is called for an alarm that goes on, too. What it throws is logged.
  void Note(const AnalyzedReport& report, Publish publish);

 private:
  void Call(const AnalyzedReport& report) noexcept;

  const Callback on_alert_;
  const CancelToken cancel_;
  VerdictState announced_;
  VerdictState called_ = VerdictState::kUnknown;
  RateLimitedLog threw_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_ALERT_NOTICES_H_
