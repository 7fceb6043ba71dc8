#include "budget/spare_core.h"

#include <gtest/gtest.h>

namespace ptqwatch::internal {
namespace spare_core_test {

/// Two CPUs. Training keeps `training` cores busy, other programs `others`. The monitor thread
/// works for the share `own` of the time and waits for the share `waited`.
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

TEST(SpareCore, CountsThreadsUntilThereIsAReading) {
  const SpareCore free({.cores_exceed_threads = true});
  EXPECT_TRUE(free.spare());
  EXPECT_FALSE(free.known());
  EXPECT_FALSE(SpareCore({}).spare());
}

TEST(SpareCore, IsFoundIfACoreIsIdle) {
  Machine machine;
  SpareCore cores({});
  cores.Read(machine.After(0, 0));
  cores.Read(machine.After(5, 1));
  EXPECT_TRUE(cores.known());
  EXPECT_TRUE(cores.spare());
}

TEST(SpareCore, IsNeverAGpuThatTrains) {
  Machine machine;
  SpareCore cores({.cores_exceed_threads = true, .on_training_device = true});
  cores.Read(machine.After(0, 0));
  cores.Read(machine.After(5, 1));
  EXPECT_TRUE(cores.known());
  EXPECT_FALSE(cores.spare());
}

TEST(SpareCore, StaysThereWhileItsOwnWorkKeepsTheCoreBusy) {
  Machine machine;
  SpareCore cores({});
  cores.Read(machine.After(0, 0));
  cores.Read(machine.After(5, 1));
  for (int i = 0; i < 20; ++i) cores.Read(machine.After(1, 1, 1, 0.01));
  EXPECT_TRUE(cores.spare());
}

TEST(SpareCore, GivesTheCoreBackWhenAnotherProcessWantsIt) {
  Machine machine;
  SpareCore cores({});
  cores.Read(machine.After(0, 0));
  cores.Read(machine.After(5, 1));
  // Three threads on two cores: each runs two thirds of the time.
  cores.Read(machine.After(1, 1.34, 0.66, 0.34));
  EXPECT_FALSE(cores.spare());
}

TEST(SpareCore, DoesNotTakeTheShareItWonForASpareCore) {
  Machine machine;
  SpareCore cores({});
  cores.Read(machine.After(0, 0));
  // Training on two threads: while the monitor runs, training waits.
  for (int i = 0; i < 20; ++i) {
    cores.Read(machine.After(1, 1.83, 0.17, 0.08));
    EXPECT_FALSE(cores.spare());
  }
}

TEST(SpareCore, IgnoresReadingsThatComeTooSoon) {
  Machine machine;
  SpareCore cores({});
  cores.Read(machine.After(0, 0));
  cores.Read(machine.After(0.05, 1));
  EXPECT_FALSE(cores.spare());
  cores.Read(machine.After(0.06, 1));
  EXPECT_TRUE(cores.spare());
  cores.Read(machine.After(0.9, 2));
  EXPECT_TRUE(cores.spare());
  cores.Read(machine.After(0.2, 2));
  EXPECT_FALSE(cores.spare());
}

TEST(SpareCore, ObeysACgroupQuota) {
  Machine machine;
  SpareCore cores({.quota_cores = 1});
  cores.Read(machine.After(0, 0));
  cores.Read(machine.After(5, 1));  // one CPU is idle, but training has used up the quota
  EXPECT_FALSE(cores.spare());
}

TEST(SpareCore, BacksOffFromAQuotaThatOthersUseAsWell) {
  Machine machine;
  SpareCore cores({.quota_cores = 2});
  cores.Read(machine.After(0, 0));
  cores.Read(machine.After(5, 1));
  ASSERT_TRUE(cores.spare());
  // A core is idle, but the cgroup, which has other processes too, is throttled now and then.
  cores.Read(machine.Throttled(0.1).After(1, 1));
  EXPECT_FALSE(cores.spare());
  cores.Read(machine.After(9, 1));
  EXPECT_FALSE(cores.spare());
  cores.Read(machine.After(2, 1));
  EXPECT_TRUE(cores.spare());
  cores.Read(machine.Throttled(0.1).After(1, 1));
  cores.Read(machine.After(18, 1));
  EXPECT_FALSE(cores.spare());
  // Training is throttled without the monitor: the backoff must not grow.
  for (int i = 0; i < 10; ++i) cores.Read(machine.Throttled(0.1).After(1, 1));
  cores.Read(machine.After(21, 1));
  EXPECT_TRUE(cores.spare());
  // Throttling for one percent of the time does not justify a rest.
  cores.Read(machine.Throttled(0.01).After(1, 1));
  EXPECT_TRUE(cores.spare());
}

TEST(SpareCore, CountsThreadsIfThereAreNoReadings) {
  SpareCore cores({.cores_exceed_threads = true});
  cores.Read(std::nullopt);
  EXPECT_TRUE(cores.spare());
  SpareCore other({.cores_exceed_threads = false});
  other.Read(std::nullopt);
  EXPECT_FALSE(other.spare());
}

}  // namespace spare_core_test
}  // namespace ptqwatch::internal
