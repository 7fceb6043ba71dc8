#ifndef PTQWATCH_PROBES_PROBE_STATUS_H_
#define PTQWATCH_PROBES_PROBE_STATUS_H_

#include "absl/status/status.h"
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

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_PROBE_STATUS_H_
