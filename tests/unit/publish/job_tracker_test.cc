#include "publish/job_tracker.h"

#include <gmock/gmock.h>

namespace ptqwatch::internal {
namespace job_tracker_test {

using ::testing::HasSubstr;

MakeSlice Gptq3() { return {.method = QuantizationMethod::kGptq, .bits = 3}; }

absl::StatusOr<SliceStatus> AnySlice(const MakeSlice& request) {
  return SliceStatus{.state = SliceState::kWaitingForFirst, .request = request};
}
absl::StatusOr<CooldownStatus> AnyCooldown(const StartCooldown& request) {
  return CooldownStatus{.state = CooldownState::kWaiting, .decay_steps = request.decay_steps};
}
template <typename Tracker, typename Request>
std::string Refusal(Tracker& tracker, const Request& request, absl::StatusCode code) {
  const auto number = tracker.Accept(request);
  EXPECT_EQ(number.status().code(), code) << number.status();
  return std::string(number.status().message());
}

TEST(JobTracker, FollowsWorkToItsEnd) {
  CooldownTracker tracker("shadow cooldown");
  tracker.Open(AnyCooldown);
  EXPECT_EQ(tracker.status().state, CooldownState::kNone);
  EXPECT_EQ(tracker.Accept({.decay_steps = 3200}, /*snapshots_taken=*/7).value(), 1);
  EXPECT_EQ(tracker.status().state, CooldownState::kWaiting);
  EXPECT_EQ(tracker.status().decay_steps, 3200);
  EXPECT_EQ(tracker.snapshots_taken(), 7);
  tracker.Update([](CooldownStatus& status) {
    status.state = CooldownState::kSimulating;
    status.steps_done = 450;
    status.waits_for_core = true;
  });
  EXPECT_EQ(tracker.status().steps_done, 450);
  EXPECT_TRUE(tracker.status().waits_for_core);
  tracker.Update([](CooldownStatus& status) {
    status.state = CooldownState::kDone;
    status.result = "gptq3 error would end at 8.8 %";
  });
  EXPECT_FALSE(tracker.status().waits_for_core);
  EXPECT_EQ(tracker.Accept({.decay_steps = 100}).value(), 2);
  EXPECT_EQ(tracker.status().result, "");
}

TEST(JobTracker, TakesOneAtATime) {
  SliceTracker slices("slice");
  slices.Open(AnySlice);
  ASSERT_TRUE(slices.Accept(Gptq3()).ok());
  EXPECT_THAT(Refusal(slices, MakeSlice{}, absl::StatusCode::kFailedPrecondition),
              HasSubstr("a slice through gptq3 is under way (waiting_for_first)"));
  slices.Fail("disk full");
  EXPECT_EQ(slices.status().error, "disk full");
  EXPECT_EQ(slices.Accept(Gptq3()).value(), 2);
  EXPECT_EQ(slices.status().error, "");
  CooldownTracker cooldowns("shadow cooldown");
  cooldowns.Open(AnyCooldown);
  ASSERT_TRUE(cooldowns.Accept({.decay_steps = 10}).ok());
  EXPECT_THAT(Refusal(cooldowns, StartCooldown{10}, absl::StatusCode::kFailedPrecondition),
              HasSubstr("shadow cooldown 1 is under way (waiting)"));
}

TEST(JobTracker, RefusesWhatDoesNotPassTheCheck) {
  SliceTracker tracker("slice");
  tracker.Open([](const MakeSlice&) -> absl::StatusOr<SliceStatus> {
    return absl::InvalidArgumentError("points = 0");
  });
  EXPECT_EQ(Refusal(tracker, MakeSlice{}, absl::StatusCode::kInvalidArgument), "points = 0");
  EXPECT_EQ(tracker.status().state, SliceState::kNone);
}

TEST(JobTracker, RefusesUntilItIsOpenAndOnceItIsClosed) {
  SliceTracker tracker("slice");
  EXPECT_EQ(Refusal(tracker, Gptq3(), absl::StatusCode::kFailedPrecondition),
            "no slice: this monitor makes none");
  tracker.Open(AnySlice);
  ASSERT_TRUE(tracker.Accept(Gptq3()).ok());
  tracker.Close("the monitor was stopped");
  EXPECT_EQ(tracker.status().state, SliceState::kFailed);
  EXPECT_EQ(tracker.status().error, "the monitor was stopped");
  tracker.Update([](SliceStatus& status) { status.path = "late"; });
  EXPECT_EQ(tracker.status().path, "");
  EXPECT_EQ(Refusal(tracker, Gptq3(), absl::StatusCode::kFailedPrecondition),
            "no slice: the monitor was stopped");
}

TEST(JobTracker, CancelsWhatIsUnderWay) {
  CooldownTracker tracker("shadow cooldown");
  tracker.Open(AnyCooldown);
  EXPECT_EQ(tracker.Cancel().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(tracker.Accept({.decay_steps = 10}).ok());
  tracker.Update([](CooldownStatus& status) { status.waits_for_core = true; });
  EXPECT_TRUE(tracker.Cancel().ok());
  EXPECT_EQ(tracker.status().state, CooldownState::kFailed);
  EXPECT_FALSE(tracker.status().waits_for_core);
  tracker.Update([](CooldownStatus& status) { status.state = CooldownState::kDone; });
  EXPECT_EQ(tracker.status().state, CooldownState::kFailed);
  EXPECT_EQ(tracker.status().error, "cancelled by a command");
}

}  // namespace job_tracker_test
}  // namespace ptqwatch::internal
