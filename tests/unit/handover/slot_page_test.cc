#include "handover/slot_page.h"

#include <gtest/gtest.h>

namespace ptqwatch::internal {
namespace slot_page_test {

class SlotPageTest : public ::testing::Test {
 protected:
  void Fill(int64_t step) {
    ASSERT_TRUE(page_.Claim());
    page_.header = {.info = {.step = step}};
    page_.Offer();
  }
  // Whether a measuring process that takes over here finds this step to measure.
  bool SuccessorFinds(int64_t step) {
    page_.TakeOver();
    return page_.filled() && page_.header.info.step == step;
  }
  SlotPage page_;
};

TEST_F(SlotPageTest, GoesRound) {
  EXPECT_FALSE(page_.BeginLoading());
  Fill(3);
  EXPECT_FALSE(page_.Claim());
  EXPECT_TRUE(page_.has_taken(3));
  ASSERT_TRUE(page_.BeginLoading());
  EXPECT_FALSE(page_.Claim());
  EXPECT_FALSE(page_.BeginLoading());
  page_.Release();
  EXPECT_TRUE(page_.free());
  EXPECT_EQ(page_.done(), 0);
  page_.Done();
  EXPECT_EQ(page_.newest(), 1);
  EXPECT_EQ(page_.done(), 1);
}

TEST_F(SlotPageTest, NumbersSnapshotsByTheirAttempts) {
  ASSERT_TRUE(page_.Claim());
  page_.Abandon();
  EXPECT_EQ(page_.newest(), 0);
  Fill(1);
  EXPECT_EQ(page_.newest(), 2);
  EXPECT_EQ(page_.attempts(), 2);
}

TEST_F(SlotPageTest, ASuccessorMeasuresWhatWasBegunOnceMore) {
  Fill(5);
  ASSERT_TRUE(page_.BeginLoading());
  EXPECT_TRUE(SuccessorFinds(5)) << "while loading";
  EXPECT_EQ(page_.lost(), 0);
  ASSERT_TRUE(page_.BeginLoading());
  page_.Release();
  EXPECT_FALSE(SuccessorFinds(5)) << "it ends every process";
  EXPECT_EQ(page_.lost(), 1);
  EXPECT_EQ(page_.done(), 1);
  EXPECT_FALSE(page_.has_taken(5)) << "Finish may take it again";
  EXPECT_TRUE(page_.free());
}

TEST_F(SlotPageTest, ASuccessorMeasuresWhatHasReplacedIt) {
  Fill(5);
  ASSERT_TRUE(page_.BeginLoading());
  page_.Release();
  Fill(6);
  EXPECT_TRUE(SuccessorFinds(6));
  EXPECT_EQ(page_.lost(), 1) << "step 5";
  EXPECT_TRUE(page_.has_taken(6));
}

TEST_F(SlotPageTest, ASuccessorLeavesACopyAlone) {
  Fill(5);
  ASSERT_TRUE(page_.BeginLoading());
  page_.Release();
  ASSERT_TRUE(page_.Claim());
  page_.TakeOver();
  EXPECT_EQ(page_.lost(), 1);
  EXPECT_EQ(page_.state(), SlotState::kPending);
  page_.Offer();
  EXPECT_TRUE(page_.filled());
}

TEST_F(SlotPageTest, ASuccessorHasNothingToDoAfterAReport) {
  Fill(5);
  ASSERT_TRUE(page_.BeginLoading());
  page_.Release();
  page_.Done();
  EXPECT_FALSE(SuccessorFinds(5));
  EXPECT_EQ(page_.lost(), 0);
  EXPECT_TRUE(page_.free());
}

}  // namespace slot_page_test
}  // namespace ptqwatch::internal
