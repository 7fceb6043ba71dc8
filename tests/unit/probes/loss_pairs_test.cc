#include "probes/loss_pairs.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace ptqwatch::internal {
namespace loss_pairs_test {

using ::testing::HasSubstr;

const UnitLosses kFull = {{8, 12, 10}, {4, 5, 4}, 13, {}, {}};
const UnitLosses kQuantized = {{9, 12.5, 12}, {4, 5, 4}, 13, {}, {}};

TEST(LossPairs, FillInTheLossesOfAReport) {
  LossPairs pairs;
  ASSERT_TRUE(pairs.Add(kFull, kQuantized).ok());
  ASSERT_TRUE(pairs.Add(kQuantized, kFull).ok());
  EXPECT_EQ(pairs.units(), 6u);
  EXPECT_EQ(pairs.Change().value, 0);
  EXPECT_EQ(pairs.FullLoss().value, 63.5 / 26);
  LossPairs first;
  ASSERT_TRUE(first.Add(kFull, kQuantized).ok());
  QuantizationReport report;
  ASSERT_TRUE(first.FillIn(report).ok());
  EXPECT_EQ(report.probe_tokens, 13);
  EXPECT_DOUBLE_EQ(*report.loss_nats, 33.5 / 13);
  EXPECT_DOUBLE_EQ(*report.delta_nats, 3.5 / 13);
  EXPECT_DOUBLE_EQ(*report.error_ratio, 3.5 / 30);
  // Cochran's ratio estimator by hand: rests x_i - r y_i of 1, 0.5, 2 over 4, 5, 4.
  const double r = 3.5 / 13;
  const double squares = std::pow(1 - 4 * r, 2) + std::pow(0.5 - 5 * r, 2) + std::pow(2 - 4 * r, 2);
  EXPECT_NEAR(*report.delta_stderr_nats, std::sqrt(1.5 * squares) / 13, 1e-15);
  EXPECT_FALSE(report.accuracy_ratio);
}

TEST(LossPairs, RefuseWhatCannotBeCompared) {
  LossPairs pairs;
  UnitLosses endless = kQuantized;
  endless.sum[1] = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(absl::IsDataLoss(pairs.Add(kFull, endless)));
  UnitLosses other = kQuantized;
  other.weight[0] = 3;
  EXPECT_THAT(std::string(pairs.Add(kFull, other).message()), HasSubstr("different weights"));
  QuantizationReport report;
  EXPECT_THAT(std::string(pairs.FillIn(report).message()), HasSubstr("masked out"));
}

TEST(SumUp, AddsTheBatches) {
  QuantizationResult result;
  SumUp({kFull, kQuantized}, result);
  EXPECT_EQ(result.tokens, 26);
  EXPECT_DOUBLE_EQ(*result.loss_nats, 63.5 / 26);
  EXPECT_TRUE(result.loss_stderr_nats);
}

}  // namespace loss_pairs_test
}  // namespace ptqwatch::internal
