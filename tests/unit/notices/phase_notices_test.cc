#include "notices/phase_notices.h"

#include <gmock/gmock.h>

#include <vector>

namespace ptqwatch::internal {
namespace phase_notices_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct PhaseNoticesTest : ::testing::Test {
  PhaseNoticesTest() {
    changes.Note(LrPhase::kStable, 0);
    notices.Poll(Announce());
  }
  PhaseNotices::Announce Announce() {
    return [this](int64_t step, std::string message) {
      said.push_back(std::to_string(step) + ": " + message);
    };
  }
  PhaseChanges changes;
  PhaseNotices notices{&changes, LrPhase::kStable};
  std::vector<std::string> said;
};

TEST_F(PhaseNoticesTest, AnnounceEachChangeOnce) {
  EXPECT_FALSE(changes.Note(LrPhase::kStable, 1));
  EXPECT_FALSE(changes.Note(LrPhase::kUnknown, 2)) << "as after a rollback";
  EXPECT_TRUE(changes.Note(LrPhase::kDecay, 3));
  EXPECT_FALSE(changes.Note(LrPhase::kDecay, 4));
  notices.Poll(Announce());
  notices.Poll(Announce());
  notices.BeforeReport(Announce());
  EXPECT_THAT(said, ElementsAre("3: learning-rate phase stable -> decay"));
}

TEST_F(PhaseNoticesTest, AreFewIfTheRateGoesUpAndDown) {
  for (int64_t step = 1; step <= 1000; ++step) {
    if (changes.Note(step % 2 == 1 ? LrPhase::kRewarm : LrPhase::kStable, step)) {
      notices.Poll(Announce());
    }
  }
  EXPECT_THAT(said, SizeIs(PhaseNotices::kMost));
  changes.Note(LrPhase::kDecay, 1001);
  said.clear();
  notices.BeforeReport(Announce());
  EXPECT_THAT(said, IsEmpty());
  // A change that did not fit into the slots is noted at the next step, with the phase of that
  // step.
  EXPECT_TRUE(changes.Note(LrPhase::kDecay, 1002));
  said.clear();
  notices.Poll(Announce());
  EXPECT_THAT(said, ElementsAre("1002: learning-rate phase stable -> decay"));
}

TEST(PhaseChanges, PutOffWhatDoesNotFit) {
  PhaseChanges changes;
  for (int64_t step = 0; step < static_cast<int64_t>(PhaseChanges::kSlots); ++step) {
    EXPECT_TRUE(changes.Note(step % 2 == 0 ? LrPhase::kWarmup : LrPhase::kStable, step));
  }
  EXPECT_FALSE(changes.Note(LrPhase::kDecay, 100));
  EXPECT_EQ(changes.Next()->step, 0);
  EXPECT_TRUE(changes.Note(LrPhase::kDecay, 101));
  PhaseChanges::Change last;
  while (const auto change = changes.Next()) last = *change;
  EXPECT_EQ(last.phase, LrPhase::kDecay);
  EXPECT_EQ(last.step, 101);
}

}  // namespace phase_notices_test
}  // namespace ptqwatch::internal
