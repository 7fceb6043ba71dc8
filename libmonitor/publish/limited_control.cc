#include "publish/limited_control.h"

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "base/strings.h"
#include "report/command_fields.h"

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

absl::StatusOr<int64_t> LimitedControl::Do(const Command& command) {
  const CommandLimit limit = EntryOf(command).limit;
  MutexLock lock(mutex_);
  TokenBucket& bucket = buckets_.try_emplace(limit.what, limit.burst, limit.interval).first->second;
  PTQWATCH_RETURN_IF_ERROR(bucket.Check(limit.what, clock_->Monotonic()));
  absl::StatusOr<int64_t> done = control_->Do(command);
  if (done.ok()) bucket.Take();
  return done;
}

}  // namespace ptqwatch::internal
