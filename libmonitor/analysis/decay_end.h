#ifndef PTQWATCH_ANALYSIS_DECAY_END_H_
#define PTQWATCH_ANALYSIS_DECAY_END_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "ptqwatch/options.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

struct DecayPlan {
  int64_t settle_steps = 0;  ///< before the decay, at the full rate
  int64_t steps = 0;         ///< of the decay
  friend bool operator==(const DecayPlan&, const DecayPlan&) = default;
};

/// The decays of a shadow cooldown, shortest first; at least one. Shares that round to the same
/// number of steps are simulated once.
std::vector<DecayPlan> PlanDecays(const CooldownOptions& options, int64_t decay_steps);

/// The learning rate of step `index` of a decay that begins at `rate`. A negative index is a
/// settling step before the decay.
double SimulatedRate(const CooldownOptions& options, const DecayPlan& decay, double rate,
                     int64_t index);

/// A positive quantity at the end of a decay with `share` of the planned decay's steps.
struct EndPoint {
  double share = 1;
  double value = 0;
  double relative_stderr = 0;  ///< of the measurement
};

/// How a quantity at the end of a decay depends on the length of the decay.
struct LengthPrior {
  double slope = 0;         ///< of its logarithm, per doubling of the length
  double slope_stddev = 0;  ///< between models and recipes
  double scatter = 0;       ///< of its logarithm, between decays on different batches
};

struct Interval {
  double value = 0;
  double low = 0;  ///< 95 %
  double high = 0;
};

/// The quantity at the end of the whole planned decay: a linear regression of its logarithm on the
/// logarithm of the length, with a prior on the slope. The interval is that for one further decay.
/// nullopt without a positive and finite point.
std::optional<Interval> ExtrapolateEnd(absl::Span<const EndPoint> points, const LengthPrior& prior);

/// Fills in the prediction for the end of the planned decay from `end.decays`. The status is kOk if
/// at least one of them ended.
void PredictEnd(PredictedEnd& end);

/// "step 8000, a decay of 3200 steps: gptq3 error would end at 8.8 % (7.1-10.9 %), loss 1.58", for
/// the watched quantizer.
std::string DescribePrediction(const PredictedEnd& end);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_DECAY_END_H_
