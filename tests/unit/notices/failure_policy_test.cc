#include "notices/failure_policy.h"

#include <gmock/gmock.h>

namespace ptqwatch::internal {
namespace failure_policy_test {

using Kind = ProbeOutcome::Kind;
using ::testing::Optional;
using Decision = FailurePolicy::Decision;

ProbeOutcome Outcome(std::string probe, Kind kind, std::string detail = "") {
  return {std::move(probe), kind, std::move(detail)};
}

TEST(FailurePolicy, SaysNothingOfASnapshotThatWasMeasured) {
  FailurePolicy policy(2);
  const Decision decision = policy.Note({{Outcome("a", Kind::kOk), Outcome("b", Kind::kOk)}});
  EXPECT_FALSE(decision.failure);
  EXPECT_TRUE(decision.switched_off.empty());
  EXPECT_FALSE(decision.nothing_to_measure);
}

TEST(FailurePolicy, AnnouncesTheFirstFailureOfASnapshot) {
  FailurePolicy policy(2);
  EXPECT_THAT(policy
                  .Note({{Outcome("a", Kind::kIncomplete, "weights are NaN"),
                          Outcome("b", Kind::kFailed, "no gradient")}})
                  .failure,
              Optional(std::string("weights are NaN")));
  EXPECT_THAT(
      policy.Note({{Outcome("a", Kind::kOk), Outcome("b", Kind::kFailed, "no gradient")}}).failure,
      Optional(std::string("no gradient")));
}

TEST(FailurePolicy, CountsFailuresInARowByProbe) {
  FailurePolicy policy(2);
  EXPECT_TRUE(policy.Note({{Outcome("a", Kind::kFailed), Outcome("b", Kind::kFailed)}})
                  .switched_off.empty());
  const Decision decision =
      policy.Note({{Outcome("a", Kind::kOk), Outcome("b", Kind::kFailed, "again")}});
  ASSERT_EQ(decision.switched_off.size(), 1u);
  EXPECT_EQ(decision.switched_off[0].probe, "b");
  EXPECT_EQ(decision.switched_off[0].failures, 2);
  EXPECT_EQ(decision.switched_off[0].detail, "again");
  EXPECT_TRUE(policy.Note({{Outcome("a", Kind::kFailed)}}).switched_off.empty());
}

TEST(FailurePolicy, ASnapshotThatCannotBeMeasuredEndsTheRow) {
  FailurePolicy policy(2);
  for (Kind kind : {Kind::kFailed, Kind::kIncomplete, Kind::kFailed}) {
    EXPECT_TRUE(policy.Note({{Outcome("a", kind)}}).switched_off.empty());
  }
}

TEST(FailurePolicy, IsIdleIfEveryProbeIsDisabled) {
  FailurePolicy policy(1);
  EXPECT_FALSE(
      policy.Note({{Outcome("a", Kind::kOk), Outcome("b", Kind::kDisabled)}}).nothing_to_measure);
  const Decision decision = policy.Note({{Outcome("a", Kind::kDisabled, "off")}});
  EXPECT_TRUE(decision.nothing_to_measure);
  EXPECT_FALSE(decision.failure);
  EXPECT_TRUE(decision.switched_off.empty());
  EXPECT_FALSE(policy.Note({}).nothing_to_measure);
}

}  // namespace failure_policy_test
}  // namespace ptqwatch::internal
