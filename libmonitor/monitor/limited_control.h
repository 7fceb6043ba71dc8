#ifndef PTQWATCH_MONITOR_LIMITED_CONTROL_H_
#define PTQWATCH_MONITOR_LIMITED_CONTROL_H_

#include <chrono>
#include <string_view>
#include <type_traits>

#include "base/mutex.h"
#include "ptqwatch/control.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// Allows `burst` uses at once and one each `interval` in the long run. Not thread-safe.
class TokenBucket {
 public:
  TokenBucket(double burst, std::chrono::seconds interval)
      : burst_(burst), interval_(interval), tokens_(burst) {}
  /// ResourceExhausted, with the time to wait, where no token is left at `now`.
  absl::Status Check(std::string_view what, std::chrono::nanoseconds now);
  /// REQUIRES: Check was OK.
  void Take() { tokens_ -= 1; }

 private:
  const double burst_;
  const std::chrono::duration<double> interval_;
  double tokens_;
  std::chrono::nanoseconds last_{0};
};

/// Commands from outside the process on their way to another Control: as many as a person or a
/// script needs, and not so many that copies of the weights or slices keep a run from being
/// measured. What the other Control refuses does not count. Thread-safe.
class LimitedControl final : public Control {
 public:
  /// Both must outlive this.
  LimitedControl(Control* control, Clock* clock) : control_(control), clock_(clock) {}

  absl::Status RequestSnapshot() override;
  absl::Status Pause() override;
  absl::Status Resume() override;
  absl::Status SetEvery(int64_t steps) override;
  absl::StatusOr<int64_t> RequestSlice(const SliceRequest& request) override;
  absl::StatusOr<int64_t> RequestCooldown(const CooldownRequest& request) override;
  absl::Status CancelCooldown() override;

 private:
  template <typename Call>
  std::invoke_result_t<Call> Limit(TokenBucket& bucket, std::string_view what, Call call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Control* const control_;
  Clock* const clock_;
  Mutex mutex_;
  TokenBucket snapshots_ ABSL_GUARDED_BY(mutex_){5, std::chrono::minutes(1)};
  TokenBucket slices_ ABSL_GUARDED_BY(mutex_){3, std::chrono::minutes(10)};
  TokenBucket cooldowns_ ABSL_GUARDED_BY(mutex_){3, std::chrono::minutes(10)};
  TokenBucket switches_ ABSL_GUARDED_BY(mutex_){20, std::chrono::seconds(1)};
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_LIMITED_CONTROL_H_
