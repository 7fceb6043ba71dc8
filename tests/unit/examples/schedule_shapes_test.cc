#include <cmath>

#include "gtest/gtest.h"
#include "schedule.h"

namespace ptqwatch::examples {
namespace schedule_shapes_test {

Schedule Decay(DecayShape shape) {
  return {.kind = ScheduleKind::kWsd,
          .peak = 2,
          .steps = 100,
          .warmup_steps = 10,
          .decay_steps = 40,
          .shape = shape};
}

TEST(Schedule, WarmsUpAndStaysAtThePeak) {
  for (const DecayShape shape :
       {DecayShape::kLinear, DecayShape::kCosine, DecayShape::kOneMinusSqrt}) {
    EXPECT_DOUBLE_EQ(Decay(shape).LearningRate(0), 0.2);
    EXPECT_DOUBLE_EQ(Decay(shape).LearningRate(9), 2);
    EXPECT_DOUBLE_EQ(Decay(shape).LearningRate(59), 2);
    EXPECT_DOUBLE_EQ(Decay(shape).LearningRate(60), 2);
    EXPECT_LT(Decay(shape).LearningRate(61), 2);
    EXPECT_NEAR(Decay(shape).LearningRate(100), 0, 1e-12);
  }
}

TEST(Schedule, EachShapeIsItsFormula) {
  // A quarter of the decay is over.
  EXPECT_DOUBLE_EQ(Decay(DecayShape::kLinear).LearningRate(70), 2 * 0.75);
  EXPECT_DOUBLE_EQ(Decay(DecayShape::kCosine).LearningRate(70), 1 + std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(Decay(DecayShape::kOneMinusSqrt).LearningRate(70), 2 * 0.5);
}

TEST(Schedule, ACosineOverTheWholeRunIsTheCosineSchedule) {
  Schedule whole = Decay(DecayShape::kCosine);
  whole.decay_steps = whole.steps - whole.warmup_steps;
  Schedule cosine = whole;
  cosine.kind = ScheduleKind::kCosine;
  for (int64_t step = 0; step < whole.steps; ++step) {
    EXPECT_NEAR(whole.LearningRate(step), cosine.LearningRate(step), 1e-12) << step;
  }
}

}  // namespace schedule_shapes_test
}  // namespace ptqwatch::examples
