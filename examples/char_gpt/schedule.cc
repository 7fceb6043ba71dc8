#include "schedule.h"

#include <cmath>
#include <numbers>

namespace ptqwatch::examples {
namespace {

double Ratio(int64_t numerator, int64_t denominator) {
  return static_cast<double>(numerator) / static_cast<double>(denominator);
}

double Remaining(DecayShape shape, int64_t steps_left, int64_t decay_steps) {
  const double left = Ratio(steps_left, decay_steps);
  switch (shape) {
    case DecayShape::kLinear:
      return left;
    case DecayShape::kCosine:
      return 0.5 * (1.0 + std::cos(std::numbers::pi * (1.0 - left)));
    case DecayShape::kOneMinusSqrt:
      return 1.0 - std::sqrt(1.0 - left);
  }
  return left;
}

}  // namespace

double Schedule::LearningRate(int64_t step) const {
  if (step < warmup_steps) return peak * Ratio(step + 1, warmup_steps);
  switch (kind) {
    case ScheduleKind::kWsd:
      return step < steps - decay_steps ? peak : peak * Remaining(shape, steps - step, decay_steps);
    case ScheduleKind::kCosine: {
      const double progress = Ratio(step - warmup_steps, steps - warmup_steps);
      return peak * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    }
    case ScheduleKind::kConstant:
      return peak;
  }
  return peak;
}

}  // namespace ptqwatch::examples
