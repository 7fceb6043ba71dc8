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

/// One decay to be simulated.
struct DecayPlan {
  int64_t settle_steps = 0;  ///< at the full rate, before it
  int64_t steps = 0;         ///< of the decay
  friend bool operator==(const DecayPlan&, const DecayPlan&) = default;
};

/// The decays of a shadow cooldown, the shortest first; at least one. Shares that come to the same
/// number of steps are simulated once.
std::vector<DecayPlan> PlanDecays(const CooldownOptions& options, int64_t decay_steps);

/// The learning rate of step `index` of a decay, which begins at `rate`; at a negative index that
/// of the settling before it.
double SimulatedRate(const CooldownOptions& options, const DecayPlan& decay, double rate,
                     int64_t index);

/// A positive quantity at the end of a decay that has `share` of the planned one's steps.
struct EndPoint {
  double share = 1;
  double value = 0;
  double relative_stderr = 0;  ///< of measuring it
};

/// How a quantity changes with the length of the decay it ends.
struct LengthPrior {
  double slope = 0;         ///< of its logarithm, for each doubling of the length
  double slope_stddev = 0;  ///< between models and recipes
  double scatter = 0;       ///< of its logarithm, between decays that differ in their batches
};

struct Interval {
  double value = 0;
  double low = 0;  ///< 95 %
  double high = 0;
};

/// The quantity at the end of the whole planned decay: a linear regression of its logarithm on that
/// of the length, with a prior on the slope, and the interval of a further decay. Nothing without a
/// point that is positive and finite.
std::optional<Interval> ExtrapolateEnd(absl::Span<const EndPoint> points, const LengthPrior& prior);

/// Fills in what `end.decays` say about the end of the planned decay. Its status is kOk if one of
/// them ended.
void PredictEnd(PredictedEnd& end);

/// "step 8000, a decay of 3200 steps: gptq3 error would end at 8.8 % (7.1-10.9 %), loss 1.58". Of
/// the watched quantizer.
std::string DescribePrediction(const PredictedEnd& end);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_DECAY_END_H_
