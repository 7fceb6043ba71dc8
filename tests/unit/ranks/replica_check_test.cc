#include "ranks/replica_check.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace replica_check_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

// `digests` has one character for each rank, from rank `first` on: the bits of its parameter "b";
// '-' is a rank that has not reported.
std::vector<ReplicaCheck::Part> Parts(const std::string& digests, int64_t first = 0) {
  std::vector<ReplicaCheck::Part> parts;
  for (const char digest : digests) {
    const int64_t rank = first++;
    if (digest == '-') continue;
    const std::string bits(1, digest);
    parts.push_back(
        {.rank = rank, .digest = "of " + bits, .parameters = {{"a", "same"}, {"b", bits}}});
  }
  return parts;
}

TEST(ReplicaCheck, NamesTheParameterAndTheMinority) {
  ReplicaCheck check;
  EXPECT_FALSE(check.Compare(100, Parts("xxxx")).has_value());
  EXPECT_EQ(check.status().compared_step, 100);
  EXPECT_FALSE(check.status().diverged);
  const auto event = check.Compare(200, Parts("xxyx"));
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, Event::Kind::kReplicasDiverged);
  EXPECT_EQ(event->severity, Severity::kError);
  EXPECT_EQ(event->step, 200);
  EXPECT_THAT(event->message, AllOf(HasSubstr("rank 2 "), HasSubstr("4 ranks"),
                                    HasSubstr("step 200"), HasSubstr("'b'")));
  EXPECT_TRUE(check.status().diverged);
  EXPECT_EQ(check.status().diverged_step, 200);
  EXPECT_EQ(check.status().parameter, "b");
  EXPECT_EQ(check.status().minority, "2");
}

TEST(ReplicaCheck, NamesNoMinorityWithoutAMajority) {
  ReplicaCheck check;
  const auto event = check.Compare(100, Parts("xxyy"));
  ASSERT_TRUE(event.has_value());
  EXPECT_THAT(event->message, HasSubstr("without a majority"));
  EXPECT_TRUE(check.status().diverged);
  EXPECT_EQ(check.status().minority, "");
  EXPECT_EQ(check.status().parameter, "b");
}

TEST(ReplicaCheck, SaysOnceThatReplicasDiffer) {
  ReplicaCheck check;
  EXPECT_TRUE(check.Compare(100, Parts("xxyx")).has_value());
  EXPECT_FALSE(check.Compare(200, Parts("xxyx")).has_value());
  EXPECT_EQ(check.status().diverged_step, 100);
  EXPECT_TRUE(check.Compare(300, Parts("xxyz")).has_value());  // another rank
  EXPECT_EQ(check.status().minority, "");
  EXPECT_EQ(check.status().diverged_step, 100);
}

TEST(ReplicaCheck, TheAlarmEndsWhenTheSuspectIsEqualToOthers) {
  ReplicaCheck check;
  EXPECT_TRUE(check.Compare(100, Parts("xxyx")).has_value());
  EXPECT_FALSE(check.Compare(200, Parts("xx-x")).has_value());  // it measures fewer steps
  EXPECT_TRUE(check.status().diverged);
  const auto event = check.Compare(300, Parts("xxxx"));
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->severity, Severity::kInfo);
  EXPECT_FALSE(check.status().diverged);
  EXPECT_EQ(check.status().minority, "");
}

TEST(ReplicaCheck, ComparesAReportThatComesLate) {
  ReplicaCheck check;
  EXPECT_FALSE(check.Compare(100, Parts("xx-x")).has_value());
  EXPECT_FALSE(check.Compare(200, Parts("xx-x")).has_value());
  EXPECT_TRUE(check.Compare(100, Parts("y", 2)).has_value());
  EXPECT_EQ(check.status().minority, "2");
}

TEST(ReplicaCheck, OneRankHasNothingToCompareWith) {
  ReplicaCheck check;
  EXPECT_FALSE(check.Compare(100, Parts("x")).has_value());
  EXPECT_EQ(check.status().compared_step, 0);
  std::vector<ReplicaCheck::Part> parts = Parts("xy");
  parts[1].digest.clear();  // its parameters could not be loaded
  EXPECT_FALSE(check.Compare(200, parts).has_value());
}

TEST(ReplicaCheck, TrainingThatIsRedoneIsComparedWithItselfAlone) {
  ReplicaCheck check;
  EXPECT_FALSE(check.Compare(100, Parts("xxxx")).has_value());
  check.BeginPass();
  EXPECT_FALSE(check.Compare(100, Parts("zz")).has_value());
  EXPECT_FALSE(check.Compare(100, Parts("zz", 2)).has_value());
}

TEST(ReplicaCheck, TellsOfManyRanksInFewWords) {
  ReplicaCheck check;
  std::string digests(1000, 'x');
  for (int rank = 0; rank < 100; ++rank) digests[static_cast<size_t>(rank)] = 'y';
  const auto event = check.Compare(100, Parts(digests));
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(check.status().minority, "0, 1, 2, 3, 4, 5, 6, 7 and 92 more");
  EXPECT_LT(event->message.size(), 200u);
}

}  // namespace replica_check_test
}  // namespace ptqwatch::internal
