#ifndef PTQWATCH_PUBLISH_LIMITED_CONTROL_H_
#define PTQWATCH_PUBLISH_LIMITED_CONTROL_H_

#include <chrono>
#include <map>
#include <string_view>

#include "base/mutex.h"
#include "ptqwatch/control.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// Allows `burst` uses at once, and one per `interval` in the long run. Not thread-safe.
class TokenBucket {
 public:
  TokenBucket(double burst, std::chrono::seconds interval)
      : burst_(burst), interval_(interval), tokens_(burst) {}
  /// ResourceExhausted, with the time to wait, if no token is left at `now`.
  absl::Status Check(std::string_view what, std::chrono::nanoseconds now);
  /// REQUIRES: Check was OK.
  void Take() { tokens_ -= 1; }

 private:
  const double burst_;
  const std::chrono::duration<double> interval_;
  double tokens_;
  std::chrono::nanoseconds last_{0};
};

/// Passes commands from outside the process to another Control, at a limited rate (CommandLimit):
/// enough for a person or a script, too few for copies of the weights or slices to keep a run from
/// being measured. Commands that the other Control refuses do not count. Thread-safe.
class LimitedControl final : public Control {
 public:
  /// Both must outlive this.
  LimitedControl(Control* control, Clock* clock) : control_(control), clock_(clock) {}

  absl::StatusOr<int64_t> Do(const Command& command) override;

 private:
  Control* const control_;
  Clock* const clock_;
  Mutex mutex_;
  std::map<std::string_view, TokenBucket> buckets_ ABSL_GUARDED_BY(mutex_);  // CommandLimit::what
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PUBLISH_LIMITED_CONTROL_H_
