#include "ptqwatch/execution_context.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "support/fake_clock.h"

namespace ptqwatch {
namespace execution_context_test {

using std::chrono::milliseconds;

TEST(Pacer, SleepsInProportionToTheWork) {
  testing::FakeClock clock;
  Pacer pacer(0.05, &clock);
  CancelToken cancel;
  pacer.Begin();
  clock.Advance(milliseconds(10));
  pacer.Pause(cancel);
  EXPECT_NEAR(static_cast<double>(clock.slept().count()), 190e6, 1e3);
  pacer.Pause(cancel);  // no work since
  EXPECT_NEAR(static_cast<double>(clock.slept().count()), 190e6, 1e3);
}

TEST(Pacer, NeverSleepsAtFullDuty) {
  testing::FakeClock clock;
  Pacer pacer(1.0, &clock);
  pacer.Begin();
  clock.Advance(milliseconds(100));
  pacer.Pause(CancelToken());
  EXPECT_EQ(clock.slept().count(), 0);
}

TEST(Pacer, TakesAnotherDutyCycleWhileItSleeps) {
  testing::FakeClock clock;
  // Speeds the pacer up during its first sleep.
  class Faster final : public Clock {
   public:
    explicit Faster(testing::FakeClock* clock) : clock_(clock) {}
    std::chrono::nanoseconds Monotonic() const override { return clock_->Monotonic(); }
    double UnixSeconds() const override { return clock_->UnixSeconds(); }
    void SleepFor(std::chrono::nanoseconds duration, const std::atomic<bool>& flag) override {
      clock_->SleepFor(duration, flag);
      pacer->SetDutyCycle(1);
    }
    const Pacer* pacer = nullptr;

   private:
    testing::FakeClock* const clock_;
  };
  Faster faster(&clock);
  const Pacer pacer(0.01, &faster);
  faster.pacer = &pacer;
  pacer.Begin();
  clock.Advance(milliseconds(100));
  pacer.Pause(CancelToken());
  EXPECT_LE(clock.slept(), milliseconds(20));
}

TEST(Pacer, CountsTheTimeOnACoreAlone) {
  testing::FakeClock clock;
  const Pacer pacer(0.5, &clock);
  pacer.Begin();
  clock.Wait(milliseconds(500));
  pacer.Pause(CancelToken());
  EXPECT_EQ(clock.slept().count(), 0);
  clock.Advance(milliseconds(10));
  clock.Wait(milliseconds(500));
  pacer.Pause(CancelToken());
  EXPECT_EQ(clock.slept(), milliseconds(10));
  EXPECT_EQ(pacer.worked(), milliseconds(10));
}

TEST(Pacer, CountsTheTimeOfADevice) {
  testing::FakeClock clock;
  const Pacer pacer(0.5, &clock);
  milliseconds device(0);
  pacer.CountBy([&] { return device; });
  pacer.Begin();
  device += milliseconds(30);
  clock.Advance(milliseconds(500));  // launching, and waiting for the device
  pacer.Pause(CancelToken());
  EXPECT_EQ(clock.slept(), milliseconds(30));
  EXPECT_EQ(pacer.WorkTime(clock), milliseconds(30));
}

// A device's time goes on while nothing is queued.
TEST(Pacer, CountsNoRestOfADevice) {
  testing::FakeClock clock;
  const Pacer pacer(0.5, &clock);
  pacer.CountBy([&] { return clock.Monotonic(); });
  pacer.Begin();
  const auto begin = pacer.WorkTime(clock);
  for (int i = 0; i < 3; ++i) {
    clock.Advance(milliseconds(10));
    pacer.Pause(CancelToken());
  }
  EXPECT_EQ(clock.slept(), milliseconds(30));
  EXPECT_EQ(pacer.WorkTime(clock) - begin, milliseconds(30));
}

TEST(Pacer, ReportsEachStretchOfWork) {
  testing::FakeClock clock;
  const Pacer pacer(1.0, &clock);
  std::vector<double> stretches;
  pacer.OnWork([&](double seconds) { stretches.push_back(seconds); });
  pacer.Begin();
  clock.Advance(milliseconds(1));  // shorter than the quantum
  pacer.Pause(CancelToken());
  EXPECT_TRUE(stretches.empty());
  clock.Advance(milliseconds(9));
  pacer.Pause(CancelToken());
  ASSERT_EQ(stretches.size(), 1u);
  EXPECT_NEAR(stretches[0], 0.01, 1e-9);
  EXPECT_EQ(pacer.worked(), milliseconds(10));
  EXPECT_EQ(pacer.slept().count(), 0);
}

TEST(ExecutionContext, CanBeHurriedWhileItWorks) {
  testing::FakeClock clock;
  ExecutionContext context;
  context.clock = &clock;
  const ExecutionContext copy = context.WithDeadline(clock.Monotonic() + milliseconds(100));
  EXPECT_TRUE(copy.Checkpoint().ok());
  context.hurry.Set(clock.Monotonic() + milliseconds(10));
  EXPECT_TRUE(copy.Checkpoint().ok());
  clock.Advance(milliseconds(10));
  EXPECT_EQ(copy.Checkpoint().code(), absl::StatusCode::kDeadlineExceeded);
  context.hurry.Set(std::chrono::nanoseconds::max());
  EXPECT_TRUE(copy.Checkpoint().ok());
}

TEST(ExecutionContext, CheckpointFailsOnceCancelled) {
  ExecutionContext context;
  EXPECT_TRUE(context.Checkpoint().ok());
  CancelToken copy = context.cancel;
  copy.Cancel();
  EXPECT_EQ(context.Checkpoint().code(), absl::StatusCode::kCancelled);
}

TEST(SeedSource, DependsOnSeedProbeAndDrawOnly) {
  const SeedSource a(1);
  std::set<uint64_t> seen;
  for (uint64_t draw = 0; draw < 100; ++draw) {
    EXPECT_EQ(a.Seed("trace", draw), SeedSource(1).Seed("trace", draw));
    seen.insert(a.Seed("trace", draw));
    seen.insert(a.Seed("lanczos", draw));
    seen.insert(SeedSource(2).Seed("trace", draw));
  }
  EXPECT_EQ(seen.size(), 300u);
}

TEST(ByteBudget, RefusesWhatDoesNotFitAndSaysWhat) {
  ByteBudget budget(100);
  EXPECT_TRUE(budget.Reserve(60, "Gram matrices").ok());
  const absl::Status status = budget.Reserve(41, "eigenvectors");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("eigenvectors"), absl::string_view::npos);
  budget.Release(60);
  EXPECT_TRUE(budget.Reserve(100, "eigenvectors").ok());
}

TEST(ByteBudget, KeepsWhatIsHeldUnderALowerLimit) {
  ByteBudget budget(100);
  ASSERT_TRUE(budget.Reserve(80, "a replica").ok());
  EXPECT_EQ(budget.remaining(), 20);
  budget.SetLimit(50);
  EXPECT_EQ(budget.used(), 80);
  EXPECT_EQ(budget.remaining(), 0);
  EXPECT_FALSE(budget.Reserve(1, "anything").ok());
  budget.Release(60);
  EXPECT_TRUE(budget.Reserve(30, "Gram matrices").ok());
  EXPECT_EQ(budget.peak(), 80);
}

TEST(ByteBudget, RefusesMoreThanThereAreNumbersFor) {
  ByteBudget budget;
  ASSERT_TRUE(budget.Reserve(10, "something").ok());
  EXPECT_FALSE(budget.Reserve(INT64_MAX, "everything").ok());
  EXPECT_EQ(budget.used(), 10);
}

}  // namespace execution_context_test
}  // namespace ptqwatch
