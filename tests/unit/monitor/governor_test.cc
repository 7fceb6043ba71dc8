#include "monitor/governor.h"

#include <gtest/gtest.h>

namespace ptqwatch::internal {
namespace governor_test {

/// Two CPUs. `training` cores are busy with training, `others` with other programs, and the monitor
/// thread works `own` of the time and waits `waited` of it.
class Machine {
 public:
  CpuReading After(double seconds, double busy, double own = 0, double waited = 0) {
    now_.wall += seconds;
    now_.idle += seconds * (2 - busy - own);
    now_.own += seconds * own;
    now_.waited += seconds * waited;
    now_.process += seconds * (busy + own);
    return now_;
  }
  Machine& Throttled(double seconds) {
    now_.throttled += seconds;
    return *this;
  }

 private:
  CpuReading now_;
};

TEST(Governor, BeginsSlowlyAndWithoutRests) {
  Governor governor({.cores_exceed_threads = true}, 0);
  EXPECT_TRUE(governor.spare());
  EXPECT_EQ(governor.share(), 0.25);
  governor.Worked(10, 0);
  EXPECT_EQ(governor.RestSeconds(0), 0);
  const Governor full({}, 0);
  EXPECT_FALSE(full.spare());
  EXPECT_EQ(full.share(), 0.25);
  EXPECT_DOUBLE_EQ(full.long_run_share(), 0.04);
  EXPECT_FALSE(full.rests());
}

TEST(Governor, WorksWithoutPauseWhereACoreIsIdle) {
  Machine machine;
  Governor governor({}, 0);
  governor.Read(machine.After(0, 0));
  governor.Read(machine.After(5, 1));
  EXPECT_TRUE(governor.spare());
  EXPECT_EQ(governor.share(), 1);
  governor.Worked(100, 6);
  EXPECT_EQ(governor.RestSeconds(6), 0);
}

TEST(Governor, NeverTakesAGpuThatTrainsForSpare) {
  Machine machine;
  Governor governor({.cores_exceed_threads = true, .on_training_device = true}, 0);
  governor.Read(machine.After(0, 0));
  governor.Read(machine.After(5, 1));
  EXPECT_FALSE(governor.spare());
  EXPECT_EQ(governor.share(), 0.25);
  EXPECT_DOUBLE_EQ(governor.long_run_share(), 0.02);  // max_overhead
  governor.Worked(1, 10);
  EXPECT_GT(governor.RestSeconds(10), 0);
  governor.SetUnhindered(true);
  EXPECT_EQ(governor.share(), 1);
}

TEST(Governor, StaysThereWhileItsOwnWorkKeepsTheCoreBusy) {
  Machine machine;
  Governor governor({}, 0);
  governor.Read(machine.After(0, 0));
  governor.Read(machine.After(5, 1));
  for (int i = 0; i < 20; ++i) governor.Read(machine.After(1, 1, 1, 0.01));
  EXPECT_TRUE(governor.spare());
}

TEST(Governor, GivesTheCoreBackWhenSomebodyElseWantsIt) {
  Machine machine;
  Governor governor({}, 0);
  governor.Read(machine.After(0, 0));
  governor.Read(machine.After(5, 1));
  // Three threads on two cores: each runs two thirds of the time.
  governor.Read(machine.After(1, 1.34, 0.66, 0.34));
  EXPECT_FALSE(governor.spare());
  EXPECT_EQ(governor.share(), 0.25);
}

TEST(Governor, DoesNotTakeTheShareItWonForASpareCore) {
  Machine machine;
  Governor governor({}, 0);
  governor.Read(machine.After(0, 0));
  // Training on two threads: what the monitor runs, training waits.
  for (int i = 0; i < 20; ++i) {
    governor.Read(machine.After(1, 1.83, 0.17, 0.08));
    EXPECT_FALSE(governor.spare());
  }
}

TEST(Governor, IgnoresReadingsThatComeTooSoon) {
  Machine machine;
  Governor governor({}, 0);
  governor.Read(machine.After(0, 0));
  governor.Read(machine.After(0.05, 1));
  EXPECT_FALSE(governor.spare());
  governor.Read(machine.After(0.06, 1));
  EXPECT_TRUE(governor.spare());
  governor.Read(machine.After(0.9, 2));
  EXPECT_TRUE(governor.spare());
  governor.Read(machine.After(0.2, 2));
  EXPECT_FALSE(governor.spare());
}

TEST(Governor, ObeysACgroupQuota) {
  Machine machine;
  Governor governor({.quota_cores = 1}, 0);
  governor.Read(machine.After(0, 0));
  governor.Read(machine.After(5, 1));  // one CPU is idle, but training has used up the quota
  EXPECT_FALSE(governor.spare());
}

TEST(Governor, BacksOffFromAQuotaThatOthersUseAsWell) {
  Machine machine;
  Governor governor({.quota_cores = 2}, 0);
  governor.Read(machine.After(0, 0));
  governor.Read(machine.After(5, 1));
  ASSERT_TRUE(governor.spare());
  // A core is idle, but the cgroup, which has other processes as well, is stopped now and then.
  governor.Read(machine.Throttled(0.1).After(1, 1));
  EXPECT_FALSE(governor.spare());
  governor.Read(machine.After(9, 1));
  EXPECT_FALSE(governor.spare());
  governor.Read(machine.After(2, 1));
  EXPECT_TRUE(governor.spare());
  governor.Read(machine.Throttled(0.1).After(1, 1));
  governor.Read(machine.After(18, 1));
  EXPECT_FALSE(governor.spare());
  // Training is throttled without the monitor's help: no reason to wait longer and longer.
  for (int i = 0; i < 10; ++i) governor.Read(machine.Throttled(0.1).After(1, 1));
  governor.Read(machine.After(21, 1));
  EXPECT_TRUE(governor.spare());
  // A hundredth of the time is not worth a rest.
  governor.Read(machine.Throttled(0.01).After(1, 1));
  EXPECT_TRUE(governor.spare());
}

TEST(Governor, RestsUntilItsWorkIsWithinTheOverhead) {
  Machine machine;
  Governor governor({.max_overhead = 0.02}, 100);
  governor.Read(machine.After(0, 0));
  governor.Read(machine.After(5, 2));
  EXPECT_EQ(governor.RestSeconds(100), 0);
  governor.Worked(4, 100);
  // 4 s are 4 % of 100 s.
  EXPECT_DOUBLE_EQ(governor.RestSeconds(100), 100);
  EXPECT_DOUBLE_EQ(governor.RestSeconds(150), 50);
  EXPECT_EQ(governor.RestSeconds(200), 0);
}

TEST(Governor, SavesUpNoMoreThanHalfAMinuteOfWork) {
  Machine machine;
  Governor governor({.max_overhead = 0.02}, 0);
  governor.Read(machine.After(0, 0));
  governor.Read(machine.After(5, 2));
  constexpr double kDay = 86400;
  governor.Worked(29, kDay);
  EXPECT_EQ(governor.RestSeconds(kDay), 0);
  governor.Worked(5, kDay);
  EXPECT_NEAR(governor.RestSeconds(kDay), 100, 1e-6);  // 4 s are 4 % of 100 s
}

TEST(Governor, RestsOnASpareCoreWhereStepsTakeLongerMeanwhile) {
  Machine machine;
  Governor governor({.max_overhead = 0.02}, 0);
  governor.Read(machine.After(0, 0));
  governor.Read(machine.After(5, 1));
  ASSERT_TRUE(governor.spare());
  for (int i = 0; i < 60; ++i) governor.Slowed(0.14, 0.01);
  EXPECT_NEAR(governor.long_run_share(), 0.02 / 0.14, 1e-3);
  EXPECT_EQ(governor.share(), 1);
  governor.Worked(10, 0);
  EXPECT_NEAR(governor.RestSeconds(0), 70, 0.5);
  for (int i = 0; i < 60; ++i) governor.Slowed(0.01, 0.001);
  EXPECT_EQ(governor.long_run_share(), 1);
  EXPECT_EQ(governor.RestSeconds(0), 0);
}

TEST(Governor, DoesNotRestForASlowdownThatMayBeChance) {
  Machine machine;
  Governor governor({}, 0);
  governor.Read(machine.After(0, 0));
  governor.Read(machine.After(5, 1));
  for (int i = 0; i < 60; ++i) {
    governor.Slowed(i % 2 == 0 ? 0.05 : -0.04, 0.03);
    EXPECT_FALSE(governor.rests()) << i;
  }
}

// Each reading alone is within its error.
TEST(Governor, AddsUpWhatItSees) {
  Machine machine;
  Governor governor({.max_overhead = 0.02}, 0);
  governor.Read(machine.After(0, 0));
  governor.Read(machine.After(5, 1));
  governor.Slowed(0.04, 0.02);
  EXPECT_FALSE(governor.rests());
  for (int i = 0; i < 10; ++i) governor.Slowed(i % 2 == 0 ? 0.06 : 0.02, 0.02);
  EXPECT_NEAR(governor.long_run_share(), 0.02 / 0.04, 0.05);
}

TEST(Governor, BelievesNoSingleReading) {
  Machine machine;
  Governor governor({.max_overhead = 0.02}, 0);
  governor.Read(machine.After(0, 0));
  governor.Read(machine.After(5, 1));
  for (int i = 0; i < 10; ++i) governor.Slowed(0.005, 0.01);
  governor.Slowed(1, 0.01);  // a neighbour on the machine
  EXPECT_FALSE(governor.rests());
  EXPECT_EQ(governor.long_run_share(), 1);
}

TEST(Governor, AsksForNoLongRestWhenTheSpareCoreIsLost) {
  Machine machine;
  Governor governor({.max_overhead = 0.02}, 0);
  governor.Read(machine.After(0, 0));
  governor.Read(machine.After(5, 1));
  governor.Worked(1000, 1000);  // free of charge
  governor.Read(machine.After(1000, 2));
  ASSERT_FALSE(governor.spare());
  EXPECT_EQ(governor.RestSeconds(1000), 0);
}

TEST(Governor, IsFreeWhileTrainingWaits) {
  Governor governor({}, 0);
  governor.SetUnhindered(true);
  governor.Worked(10, 0);
  EXPECT_EQ(governor.share(), 1);
  governor.SetUnhindered(false);
  EXPECT_EQ(governor.RestSeconds(0), 0);
}

TEST(Governor, KeepsADutyCycleThatWasAskedFor) {
  Machine machine;
  Governor governor({.duty_cycle = 0.5}, 0);
  governor.Read(machine.After(0, 0));
  governor.Read(machine.After(5, 0));
  governor.Worked(10, 0);
  EXPECT_EQ(governor.share(), 0.5);
  EXPECT_EQ(governor.long_run_share(), 0.5);
  EXPECT_EQ(governor.RestSeconds(0), 0);
}

TEST(Governor, CountsThreadsWhereThereAreNoReadings) {
  Governor governor({.cores_exceed_threads = true}, 0);
  governor.Read(std::nullopt);
  EXPECT_TRUE(governor.spare());
  Governor other({.cores_exceed_threads = false}, 0);
  other.Read(std::nullopt);
  EXPECT_FALSE(other.spare());
}

}  // namespace governor_test
}  // namespace ptqwatch::internal
