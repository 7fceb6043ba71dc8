#include "monitor/slice_desk.h"

#include <gmock/gmock.h>

#include "monitor/control_inbox.h"

namespace ptqwatch::internal {
namespace {

using ::testing::HasSubstr;

constexpr SliceState kFirst = SliceState::kWaitingForFirst;

SliceRequest Gptq3() { return {.method = "gptq", .bits = 3}; }

class SliceDeskTest : public ::testing::Test {
 protected:
  SliceDeskTest() { desk_.Open({{"rtn", 4}, {"gptq", 3}}); }
  std::string Refusal(const SliceRequest& request, absl::StatusCode code) {
    const auto number = desk_.Request(request, 0);
    EXPECT_EQ(number.status().code(), code) << number.status();
    return std::string(number.status().message());
  }
  SliceDesk desk_;
};

TEST_F(SliceDeskTest, FollowsASliceToItsEnd) {
  EXPECT_EQ(desk_.status().state, SliceState::kNone);
  EXPECT_FALSE(desk_.Wants(1));
  EXPECT_EQ(desk_.Request(Gptq3(), 5).value(), 1);
  EXPECT_EQ(desk_.status().state, kFirst);
  desk_.KeptFirst();
  EXPECT_EQ(desk_.status().state, SliceState::kWaitingForSecond);
  desk_.Progress(3, 12);
  EXPECT_EQ(desk_.status().state, SliceState::kMeasuring);
  EXPECT_EQ(desk_.status().points_done, 3);
  EXPECT_EQ(desk_.status().points_all, 12);
  desk_.Done("runs/a/slice-7.json");
  EXPECT_EQ(desk_.status().state, SliceState::kDone);
  EXPECT_EQ(desk_.status().path, "runs/a/slice-7.json");
  EXPECT_EQ(desk_.status().request.method, "gptq");
  EXPECT_FALSE(desk_.Wants(99));
}

TEST_F(SliceDeskTest, WantsOnlySnapshotsTakenAfterTheRequest) {
  ASSERT_TRUE(desk_.Request(Gptq3(), 5).ok());
  EXPECT_FALSE(desk_.Wants(5));
  EXPECT_TRUE(desk_.Wants(6));
  EXPECT_TRUE(desk_.Wants(7));
}

TEST_F(SliceDeskTest, MakesOneAtATime) {
  ASSERT_TRUE(desk_.Request(Gptq3(), 0).ok());
  EXPECT_THAT(Refusal({.method = "rtn", .bits = 4}, absl::StatusCode::kFailedPrecondition),
              HasSubstr("gptq3 is under way (waiting_for_first)"));
  desk_.Fail("disk full");
  EXPECT_EQ(desk_.status().error, "disk full");
  EXPECT_EQ(desk_.Request({.method = "rtn", .bits = 4}, 0).value(), 2);
  EXPECT_EQ(desk_.status().error, "");
}

TEST_F(SliceDeskTest, NamesTheQuantizersThereAre) {
  for (const SliceRequest& request : {SliceRequest{.method = "gptq", .bits = 4},
                                      SliceRequest{.method = "awq", .bits = 3}, SliceRequest{}}) {
    EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument),
                HasSubstr("this run has rtn 4, gptq 3"));
  }
  EXPECT_EQ(desk_.status().state, SliceState::kNone);
}

TEST_F(SliceDeskTest, RefusesPointsOutOfRange) {
  for (const int points : {-5, 0, 1, 102}) {
    EXPECT_THAT(Refusal({.method = "gptq", .bits = 3, .points = points},
                        absl::StatusCode::kInvalidArgument),
                HasSubstr("points = " + std::to_string(points) + ": must be from 2 to 101"));
  }
}

TEST_F(SliceDeskTest, CloseEndsTheOneUnderWayAndRefusesOthers) {
  ASSERT_TRUE(desk_.Request(Gptq3(), 0).ok());
  desk_.Close("the monitor was stopped");
  EXPECT_EQ(desk_.status().state, SliceState::kFailed);
  EXPECT_EQ(desk_.status().error, "the monitor was stopped");
  desk_.Progress(1, 2);
  desk_.Done("late");
  EXPECT_EQ(desk_.status().state, SliceState::kFailed);
  EXPECT_EQ(desk_.status().path, "");
  EXPECT_THAT(Refusal(Gptq3(), absl::StatusCode::kFailedPrecondition),
              HasSubstr("the monitor was stopped"));
}

TEST(SliceDesk, RefusesUntilItIsOpen) {
  SliceDesk desk;
  EXPECT_EQ(desk.Request(Gptq3(), 0).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ControlInbox, TakesSlicesToTheBoard) {
  StatusBoard board;
  board.slices().Open({{"gptq", 3}});
  ControlInbox inbox(1, &board);
  board.OnSnapshot(SnapshotResult::kTaken, 0);
  EXPECT_EQ(inbox.RequestSlice(Gptq3()).value(), 1);
  EXPECT_EQ(board.Read(0).slice.state, kFirst);
  EXPECT_FALSE(board.slices().Wants(1));
  EXPECT_TRUE(board.slices().Wants(2));
}

TEST(ControlInbox, RefusesSlicesWithoutABoard) {
  ControlInbox inbox(1);
  EXPECT_EQ(inbox.RequestSlice(Gptq3()).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace ptqwatch::internal
