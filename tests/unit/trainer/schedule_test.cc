#include "trainer/schedule.h"

#include <gtest/gtest.h>

namespace ptqwatch::internal {
namespace {

TEST(Schedule, IsDueAtMultiples) {
  Schedule schedule;
  for (int64_t step = 1; step <= 30; ++step) {
    EXPECT_EQ(schedule.Due(step, 10), step % 10 == 0) << step;
  }
}

TEST(Schedule, IsDueAfterAMultipleThatWasJumpedOver) {
  Schedule schedule;
  EXPECT_FALSE(schedule.Due(7, 10));
  EXPECT_TRUE(schedule.Due(12, 10));
  EXPECT_FALSE(schedule.Due(19, 10));
  EXPECT_TRUE(schedule.Due(41, 10));
}

TEST(Schedule, GoesOnAfterARollback) {
  Schedule schedule;
  EXPECT_TRUE(schedule.Due(20, 10));
  EXPECT_FALSE(schedule.Due(11, 10));
  EXPECT_TRUE(schedule.Due(20, 10));
}

TEST(Schedule, FollowsAChangedPeriodWithoutACatchUp) {
  Schedule schedule;
  EXPECT_FALSE(schedule.Due(99, 1000));
  EXPECT_FALSE(schedule.Due(101, 10));
  EXPECT_TRUE(schedule.Due(110, 10));
}

TEST(Schedule, IsDueOnceForARepeatedStep) {
  Schedule schedule;
  EXPECT_TRUE(schedule.Due(10, 10));
  EXPECT_FALSE(schedule.Due(11, 10));
  EXPECT_FALSE(schedule.Due(12, 10));
}

}  // namespace
}  // namespace ptqwatch::internal
