#include "probes/cooldown_tracker.h"

#include <gmock/gmock.h>

namespace ptqwatch::internal {
namespace cooldown_tracker_test {

using ::testing::HasSubstr;

std::string Refusal(CooldownTracker& tracker, int64_t decay_steps, absl::StatusCode code) {
  const auto number = tracker.Accept({.decay_steps = decay_steps});
  EXPECT_EQ(number.status().code(), code) << number.status();
  return std::string(number.status().message());
}

TEST(CooldownTracker, FollowsACooldownToItsEnd) {
  CooldownTracker tracker;
  tracker.Open(3200);
  EXPECT_EQ(tracker.Accept({}).value(), 1);
  EXPECT_EQ(tracker.status().state, CooldownState::kWaiting);
  EXPECT_EQ(tracker.status().decay_steps, 3200);
  tracker.Progress(8000, 450, 3000);
  EXPECT_EQ(tracker.status().state, CooldownState::kSimulating);
  EXPECT_EQ(tracker.status().step, 8000);
  EXPECT_EQ(tracker.status().steps_done, 450);
  EXPECT_EQ(tracker.status().steps_all, 3000);
  tracker.Done("gptq3 error would end at 8.8 %");
  EXPECT_EQ(tracker.status().state, CooldownState::kDone);
  EXPECT_EQ(tracker.Accept({.decay_steps = 100}).value(), 2);
  EXPECT_EQ(tracker.status().decay_steps, 100);
  EXPECT_EQ(tracker.status().result, "");
}

TEST(CooldownTracker, SaysThatItWaitsForACore) {
  CooldownTracker tracker;
  tracker.Open(10);
  ASSERT_TRUE(tracker.Accept({}).ok());
  tracker.WaitsForCore();  // not yet: there is no snapshot to begin from
  EXPECT_FALSE(tracker.status().waits_for_core);
  tracker.Progress(8000, 0, 3000);
  tracker.WaitsForCore();
  EXPECT_TRUE(tracker.status().waits_for_core);
  tracker.Progress(8000, 1, 3000);
  EXPECT_FALSE(tracker.status().waits_for_core);
  tracker.WaitsForCore();
  ASSERT_TRUE(tracker.Cancel().ok());
  EXPECT_FALSE(tracker.status().waits_for_core);
}

TEST(CooldownTracker, MakesOneAtATime) {
  CooldownTracker tracker;
  tracker.Open(0);
  ASSERT_TRUE(tracker.Accept({.decay_steps = 10}).ok());
  EXPECT_THAT(Refusal(tracker, 10, absl::StatusCode::kFailedPrecondition),
              HasSubstr("shadow cooldown 1 is under way (waiting)"));
  tracker.Fail("out of memory");
  EXPECT_EQ(tracker.status().error, "out of memory");
  EXPECT_EQ(tracker.Accept({.decay_steps = 10}).value(), 2);
}

TEST(CooldownTracker, NeedsALength) {
  CooldownTracker tracker;
  tracker.Open(0);
  EXPECT_THAT(Refusal(tracker, 0, absl::StatusCode::kInvalidArgument),
              HasSubstr("MonitorOptions.cooldown.decay_steps"));
  EXPECT_THAT(Refusal(tracker, -3, absl::StatusCode::kInvalidArgument),
              HasSubstr("decay_steps = -3"));
}

TEST(CooldownTracker, RefusesWhileClosed) {
  CooldownTracker tracker;
  EXPECT_THAT(Refusal(tracker, 10, absl::StatusCode::kFailedPrecondition),
              HasSubstr("this monitor makes none"));
  tracker.Open(10);
  ASSERT_TRUE(tracker.Accept({}).ok());
  tracker.Close("the monitor was stopped");
  EXPECT_EQ(tracker.status().state, CooldownState::kFailed);
  EXPECT_EQ(tracker.status().error, "the monitor was stopped");
  EXPECT_THAT(Refusal(tracker, 10, absl::StatusCode::kFailedPrecondition),
              HasSubstr("the monitor was stopped"));
}

TEST(CooldownTracker, CancelsWhatIsUnderWay) {
  CooldownTracker tracker;
  tracker.Open(10);
  EXPECT_EQ(tracker.Cancel().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(tracker.Accept({}).ok());
  EXPECT_TRUE(tracker.Cancel().ok());
  EXPECT_EQ(tracker.status().state, CooldownState::kFailed);
  tracker.Done("too late");
  tracker.Progress(1, 2, 3);
  EXPECT_EQ(tracker.status().state, CooldownState::kFailed);
  EXPECT_EQ(tracker.status().error, "cancelled by a command");
}

}  // namespace cooldown_tracker_test
}  // namespace ptqwatch::internal
