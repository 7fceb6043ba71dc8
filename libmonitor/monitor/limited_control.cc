#include "monitor/limited_control.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {

absl::Status TokenBucket::Check(std::string_view what, std::chrono::nanoseconds now) {
  const std::chrono::duration<double> passed = now - last_;
  last_ = now;
  tokens_ = std::min(burst_, tokens_ + std::max(0.0, passed / interval_));
  if (tokens_ >= 1) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat("too many ", what,
                                             " were requested; the next one may come in ",
                                             std::ceil((1 - tokens_) * interval_.count()), " s"));
}

template <typename Call>
std::invoke_result_t<Call> LimitedControl::Limit(TokenBucket& bucket, std::string_view what,
                                                 Call call) {
  PTQWATCH_RETURN_IF_ERROR(bucket.Check(what, clock_->Monotonic()));
  auto done = call();
  if (done.ok()) bucket.Take();
  return done;
}

absl::Status LimitedControl::RequestSnapshot() {
  MutexLock lock(mutex_);
  return Limit(snapshots_, "snapshots", [&] { return control_->RequestSnapshot(); });
}

absl::Status LimitedControl::Pause() {
  MutexLock lock(mutex_);
  return Limit(switches_, "commands", [&] { return control_->Pause(); });
}

absl::Status LimitedControl::Resume() {
  MutexLock lock(mutex_);
  return Limit(switches_, "commands", [&] { return control_->Resume(); });
}

absl::Status LimitedControl::SetEvery(int64_t steps) {
  MutexLock lock(mutex_);
  return Limit(switches_, "commands", [&] { return control_->SetEvery(steps); });
}

absl::StatusOr<int64_t> LimitedControl::RequestSlice(const SliceRequest& request) {
  MutexLock lock(mutex_);
  return Limit(slices_, "slices", [&] { return control_->RequestSlice(request); });
}

absl::StatusOr<int64_t> LimitedControl::RequestCooldown(const CooldownRequest& request) {
  MutexLock lock(mutex_);
  return Limit(cooldowns_, "shadow cooldowns", [&] { return control_->RequestCooldown(request); });
}

absl::Status LimitedControl::CancelCooldown() {
  MutexLock lock(mutex_);
  return Limit(switches_, "commands", [&] { return control_->CancelCooldown(); });
}

}  // namespace ptqwatch::internal
