#ifndef PTQWATCH_BASE_LOG_H_
#define PTQWATCH_BASE_LOG_H_

#include <chrono>
#include <cstdint>
#include <string_view>

#include "base/mutex.h"
#include "ptqwatch/config.h"
#include "ptqwatch/log.h"

namespace ptqwatch::internal {

/// Passes one message to the sink. Never throws; must not be called with a lock held.
void Log(Severity severity, std::string_view message) noexcept;

/// Logs at most one message per `period`, so that a failure at each snapshot does not fill a
/// terminal. Thread-safe.
class PTQWATCH_EXPORT RateLimitedLog {
 public:
  explicit RateLimitedLog(std::chrono::seconds period = std::chrono::seconds(10))
      : period_(period) {}
  void operator()(Severity severity, std::string_view message) noexcept;

 private:
  std::chrono::seconds period_;
  Mutex mutex_;
  std::chrono::steady_clock::time_point next_ ABSL_GUARDED_BY(mutex_);
  int64_t suppressed_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_LOG_H_
