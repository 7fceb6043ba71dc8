#include "probes/slice_tracker.h"

#include <gmock/gmock.h>

namespace ptqwatch::internal {
namespace slice_tracker_test {

using ::testing::HasSubstr;

constexpr SliceState kFirst = SliceState::kWaitingForFirst;

MakeSlice Gptq3() { return {.method = QuantizationMethod::kGptq, .bits = 3}; }

class SliceTrackerTest : public ::testing::Test {
 protected:
  SliceTrackerTest() {
    tracker_.Open({{QuantizationMethod::kRtn, 4}, {QuantizationMethod::kGptq, 3}});
  }
  std::string Refusal(const MakeSlice& request, absl::StatusCode code) {
    const auto number = tracker_.Accept(request);
    EXPECT_EQ(number.status().code(), code) << number.status();
    return std::string(number.status().message());
  }
  SliceTracker tracker_;
};

TEST_F(SliceTrackerTest, FollowsASliceToItsEnd) {
  EXPECT_EQ(tracker_.status().state, SliceState::kNone);
  EXPECT_EQ(tracker_.Accept(Gptq3()).value(), 1);
  EXPECT_EQ(tracker_.status().state, kFirst);
  tracker_.KeptFirst();
  EXPECT_EQ(tracker_.status().state, SliceState::kWaitingForSecond);
  tracker_.Progress(3, 12);
  EXPECT_EQ(tracker_.status().state, SliceState::kMeasuring);
  EXPECT_EQ(tracker_.status().points_done, 3);
  EXPECT_EQ(tracker_.status().points_all, 12);
  tracker_.Done("runs/a/slice-7.json");
  EXPECT_EQ(tracker_.status().state, SliceState::kDone);
  EXPECT_EQ(tracker_.status().path, "runs/a/slice-7.json");
  EXPECT_EQ(tracker_.status().request.method, QuantizationMethod::kGptq);
}

TEST_F(SliceTrackerTest, MakesOneAtATime) {
  ASSERT_TRUE(tracker_.Accept(Gptq3()).ok());
  EXPECT_THAT(Refusal({.method = QuantizationMethod::kRtn, .bits = 4},
                      absl::StatusCode::kFailedPrecondition),
              HasSubstr("gptq3 is under way (waiting_for_first)"));
  tracker_.Fail("disk full");
  EXPECT_EQ(tracker_.status().error, "disk full");
  EXPECT_EQ(tracker_.Accept({.method = QuantizationMethod::kRtn, .bits = 4}).value(), 2);
  EXPECT_EQ(tracker_.status().error, "");
}

TEST_F(SliceTrackerTest, NamesTheQuantizersThereAre) {
  for (const MakeSlice& request :
       {MakeSlice{.method = QuantizationMethod::kGptq, .bits = 4},
        MakeSlice{.method = QuantizationMethod::kAwq, .bits = 3}, MakeSlice{}}) {
    EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument),
                HasSubstr("this run has rtn 4, gptq 3"));
  }
  EXPECT_EQ(tracker_.status().state, SliceState::kNone);
}

TEST_F(SliceTrackerTest, RefusesPointsOutOfRange) {
  for (const int points : {-5, 0, 1, 102}) {
    EXPECT_THAT(Refusal({.method = QuantizationMethod::kGptq, .bits = 3, .points = points},
                        absl::StatusCode::kInvalidArgument),
                HasSubstr("points = " + std::to_string(points) + ": must be from 2 to 101"));
  }
}

TEST_F(SliceTrackerTest, CloseEndsTheOneUnderWayAndRefusesOthers) {
  ASSERT_TRUE(tracker_.Accept(Gptq3()).ok());
  tracker_.Close("the monitor was stopped");
  EXPECT_EQ(tracker_.status().state, SliceState::kFailed);
  EXPECT_EQ(tracker_.status().error, "the monitor was stopped");
  tracker_.Progress(1, 2);
  tracker_.Done("late");
  EXPECT_EQ(tracker_.status().state, SliceState::kFailed);
  EXPECT_EQ(tracker_.status().path, "");
  EXPECT_THAT(Refusal(Gptq3(), absl::StatusCode::kFailedPrecondition),
              HasSubstr("the monitor was stopped"));
}

TEST(SliceTracker, RefusesUntilItIsOpen) {
  SliceTracker tracker;
  EXPECT_EQ(tracker.Accept(Gptq3()).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace slice_tracker_test
}  // namespace ptqwatch::internal
