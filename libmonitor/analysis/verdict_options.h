#ifndef PTQWATCH_ANALYSIS_VERDICT_OPTIONS_H_
#define PTQWATCH_ANALYSIS_VERDICT_OPTIONS_H_

namespace ptqwatch::internal {

/// Where verdicts draw their lines. docs/verdicts.md has the error rates of the defaults.
struct VerdictOptions {
  /// Evidence that an alarm needs, in standard errors, while the learning rate is high ...
  double plateau_sigmas = 3.4;
  /// ... and while it falls, when degradation is the rule (arXiv 2510.06213).
  double decay_sigmas = 2.2;
  /// Nothing is an alarm that costs less than this, in nats per token, whatever its ratio.
  double floor_nats = 0.004;
  /// Nor is a smaller rise than by these factors, on a plateau and in a decay.
  double plateau_ratio = 1.25;
  double decay_ratio = 1.1;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_VERDICT_OPTIONS_H_
