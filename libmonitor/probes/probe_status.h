#ifndef PTQWATCH_PROBES_PROBE_STATUS_H_
#define PTQWATCH_PROBES_PROBE_STATUS_H_

#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// What a report calls the end that `status` describes.
inline ProbeStatus ProbeStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ProbeStatus::kOk;
    case absl::StatusCode::kCancelled:
      return ProbeStatus::kCancelled;
    case absl::StatusCode::kDeadlineExceeded:
      return ProbeStatus::kOutOfTime;
    case absl::StatusCode::kDataLoss:
      return ProbeStatus::kNonFinite;
    default:
      return ProbeStatus::kFailed;
  }
}

/// Seconds since it was made or last asked.
class Stopwatch {
 public:
  explicit Stopwatch(Clock* clock) : clock_(clock), begin_(clock->Monotonic()) {}
  double Lap() {
    const auto now = clock_->Monotonic();
    return std::chrono::duration<double>(now - std::exchange(begin_, now)).count();
  }

 private:
  Clock* clock_;
  std::chrono::nanoseconds begin_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_PROBE_STATUS_H_
