#ifndef PTQWATCH_VERDICT_OPTIONS_H_
#define PTQWATCH_VERDICT_OPTIONS_H_

#include "absl/status/status.h"
#include "ptqwatch/config.h"

namespace ptqwatch {

/// Thresholds of verdicts. A monitor uses the defaults, whose error rates are in docs/verdicts.md;
/// other values are for experiments on old runs.
struct VerdictOptions {
  /// Evidence needed for an alarm, in standard errors, while the learning rate is high ...
  double plateau_sigmas = 3.4;
  /// ... and while it falls, when degradation is the rule (arXiv 2510.06213).
  double decay_sigmas = 2.2;
  /// A rise is no alarm if it costs less than this, in nats per token, whatever its ratio ...
  double floor_nats = 0.004;
  /// ... or if its ratio is below these factors, on a plateau and in a decay.
  double plateau_ratio = 1.25;
  double decay_ratio = 1.1;
};

/// InvalidArgument naming the field and its value: sigmas must be positive, the floor at least 0,
/// and ratios at least 1.
PTQWATCH_EXPORT absl::Status Validate(const VerdictOptions& options);

}  // namespace ptqwatch

#endif  // PTQWATCH_VERDICT_OPTIONS_H_
