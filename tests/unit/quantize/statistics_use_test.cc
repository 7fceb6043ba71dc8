#include "quantize/statistics_use.h"

#include <gtest/gtest.h>

#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch::internal {
namespace statistics_use_test {

using testing::SpecOf;

TEST(StatisticsUse, IsDecidedByTheMethod) {
  EXPECT_TRUE(CodesUseStatistics(SpecOf(QuantizationMethod::kGptq)));
  EXPECT_TRUE(CodesUseStatistics(SpecOf(QuantizationMethod::kAwq)));
  EXPECT_FALSE(CodesUseStatistics(SpecOf(QuantizationMethod::kNf4)));
  QuantizerSpec int8 = SpecOf(QuantizationMethod::kLlmInt8);
  EXPECT_TRUE(CodesUseStatistics(int8));
  int8.outlier_threshold = 0;
  EXPECT_FALSE(CodesUseStatistics(int8));
}

TEST(StatisticsUse, ClippedRtnUsesThemButRunsWithout) {
  QuantizerSpec rtn = SpecOf(QuantizationMethod::kRtn);
  EXPECT_FALSE(CodesUseStatistics(rtn));
  rtn.clip = ClipSearch::kMse;
  EXPECT_TRUE(CodesUseStatistics(rtn));
  EXPECT_FALSE(RequiresStatistics(rtn));
}

TEST(StatisticsUse, QuantizeRefusesExactlyWhatRequiresThem) {
  const testing::Matrix weight = testing::RandomMatrix(3, 8, 1);
  for (QuantizationMethod method : testing::kAllMethods) {
    const QuantizerSpec spec = SpecOf(method);
    EXPECT_EQ(testing::TryQuantize(weight, nullptr, spec).ok(), !RequiresStatistics(spec))
        << Describe(spec);
  }
}

}  // namespace statistics_use_test
}  // namespace ptqwatch::internal
