#ifndef PTQWATCH_NOTICES_PROBE_OUTCOME_H_
#define PTQWATCH_NOTICES_PROBE_OUTCOME_H_

#include <string>

#include "absl/status/status.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// How a probe ended on one snapshot; FailurePolicy counts failures.
struct ProbeOutcome {
  enum class Kind {
    kOk,
    kIncomplete,  ///< this snapshot could not be measured: weights not finite, out of time
    kFailed,      ///< the probe itself fails, and may do so at every snapshot
    kDisabled,    ///< does not run here
  };
  std::string probe = {};
  Kind kind = Kind::kOk;
  std::string detail = {};  ///< why it is not kOk
};

/// The ProbeStatus of a report that corresponds to `status`.
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

/// The outcome that corresponds to a ProbeStatus.
inline ProbeOutcome::Kind OutcomeOf(ProbeStatus status) {
  switch (status) {
    case ProbeStatus::kOk:
      return ProbeOutcome::Kind::kOk;
    case ProbeStatus::kFailed:
      return ProbeOutcome::Kind::kFailed;
    case ProbeStatus::kDisabled:
    case ProbeStatus::kOtherRank:
      return ProbeOutcome::Kind::kDisabled;
    default:
      return ProbeOutcome::Kind::kIncomplete;
  }
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_NOTICES_PROBE_OUTCOME_H_
