// Parameters that stand still while steps pass.
#include <string>

#include "analysis_fixture.h"
#include "gmock/gmock.h"

namespace ptqwatch::internal {
namespace standstill_test {

using ::testing::HasSubstr;

struct StandstillTest : ::testing::Test {
  StandstillTest() { FeedStable(analyzer); }
  VerdictState Add(int64_t step, const std::string& digest, double rate = kRate) {
    Report report = At(step, 0.098, rate);
    report.snapshot_digest = digest;
    verdict = analyzer.Add(report);
    return verdict.state;
  }
  Analyzer analyzer;
  Verdict verdict;
};

TEST_F(StandstillTest, IsUnknownFromTheSecondSuchSnapshotUntilTheyMove) {
  EXPECT_EQ(Add(20000, "a"), VerdictState::kHealthy);
  EXPECT_EQ(Add(21000, "a"), VerdictState::kHealthy);
  EXPECT_EQ(analyzer.still_since(), std::nullopt);
  EXPECT_EQ(Add(22000, "a"), VerdictState::kUnknown);
  EXPECT_EQ(analyzer.still_since(), 20000);
  EXPECT_THAT(verdict.summary, HasSubstr("from step 20000 to step 22000"));
  EXPECT_EQ(verdict.method, QuantizationMethod::kGptq);
  EXPECT_EQ(Add(23000, "a"), VerdictState::kUnknown);
  EXPECT_EQ(Add(24000, "b"), VerdictState::kHealthy);
  EXPECT_EQ(analyzer.still_since(), std::nullopt);
}

TEST_F(StandstillTest, NeedsDigestsRatesAndStepsThatAdvance) {
  for (int64_t step = 20000; step < 24000; step += 1000) {
    EXPECT_EQ(Add(step, ""), VerdictState::kHealthy);  // journals of earlier versions
  }
  Add(24000, "a");
  for (int i = 0; i < 4; ++i) EXPECT_NE(Add(24000, "a"), VerdictState::kUnknown);
  for (int64_t step = 25000; step < 29000; step += 1000) {
    EXPECT_NE(Add(step, "a", /*rate=*/0), VerdictState::kUnknown);
  }
}

TEST_F(StandstillTest, RepeatedMeasurementsAreNotABaseline) {
  Analyzer other;
  for (int64_t step = 1000; step < 20000; step += 1000) {
    Report report = At(step, 0.098);
    report.snapshot_digest.push_back('a');  // not assigned: GCC bug 105651
    other.Add(report);
  }
  EXPECT_EQ(other.Add(At(20000, 0.098)).state, VerdictState::kWarmingUp);
}

TEST_F(StandstillTest, ARollbackIsNotAStandstill) {
  Add(20000, "a");
  Add(21000, "b");
  Report report = At(20000, 0.098);
  report.snapshot_digest.push_back('a');  // not assigned: GCC bug 105651
  report.rolled_back = true;
  EXPECT_EQ(analyzer.Add(report).state, VerdictState::kHealthy);
  EXPECT_EQ(Add(21000, "a"), VerdictState::kHealthy);
}

}  // namespace standstill_test
}  // namespace ptqwatch::internal
