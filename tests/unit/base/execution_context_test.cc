#include "ptqwatch/execution_context.h"

#include <gtest/gtest.h>

#include <set>

#include "support/fake_clock.h"

namespace ptqwatch {
namespace {

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

}  // namespace
}  // namespace ptqwatch
