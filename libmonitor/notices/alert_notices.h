#ifndef PTQWATCH_NOTICES_ALERT_NOTICES_H_
#define PTQWATCH_NOTICES_ALERT_NOTICES_H_

#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "base/log.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Announces when the verdict becomes an alarm, changes to another alarm, or stops being one.
/// Ignores reports whose verdict is unknown. Not thread-safe.
class AlertNotices {
 public:
  using Callback = std::function<void(const AnalyzedReport&)>;
  using Publish = absl::FunctionRef<void(Severity, std::string message)>;

  /// `before` is the last verdict that earlier attempts announced. `on_alert` may be empty; it is
  /// not called once `cancel` is cancelled.
  AlertNotices(VerdictState before, Callback on_alert, CancelToken cancel);

  /// Call it after the report is published. Logs and publishes an alarm that begins or ends, and
  /// calls on_alert for one that begins. on_alert is also called for an alarm that an earlier
  /// attempt announced, since this process has not seen it. Logs an exception that on_alert throws.
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

#endif  // PTQWATCH_NOTICES_ALERT_NOTICES_H_
