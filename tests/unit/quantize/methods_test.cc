#include "quantize/methods.h"

#include <gtest/gtest.h>

#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch::internal {
namespace methods_test {

using enum QuantizationMethod;
using testing::SpecOf;

// RTN's row stands for a value without one.
TEST(Methods, HaveARowForEachName) {
  const size_t names = NamesOf(QuantizationMethod()).size();
  for (size_t i = 1; i < names; ++i) {
    const auto method = static_cast<QuantizationMethod>(i);
    EXPECT_NE(&MethodOf(method), &kRtnMethod) << ToString(method);
  }
}

TEST(Methods, NameTheStatisticsThatTheirCodesDependOn) {
  EXPECT_EQ(StatisticsOf(SpecOf(kGptq)), Statistics::kGram);
  EXPECT_EQ(StatisticsOf(SpecOf(kAwq)), Statistics::kGramAndAbsSum);
  EXPECT_EQ(StatisticsOf(SpecOf(kNf4)), Statistics::kNone);
  QuantizerSpec int8 = SpecOf(kLlmInt8);
  EXPECT_EQ(StatisticsOf(int8), Statistics::kGramAndAbsMax);
  int8.outlier_threshold = 0;
  EXPECT_EQ(StatisticsOf(int8), Statistics::kNone);
}

TEST(Methods, ClippedRtnUsesStatisticsButRunsWithout) {
  QuantizerSpec rtn = SpecOf(kRtn);
  EXPECT_EQ(StatisticsOf(rtn), Statistics::kNone);
  rtn.clip = ClipSearch::kMse;
  EXPECT_EQ(StatisticsOf(rtn), Statistics::kGramIfAny);
  EXPECT_FALSE(NeedsStatistics(rtn));
  for (const ClipSearch by_weights : {ClipSearch::kPercentile, ClipSearch::kStd}) {
    rtn.clip = by_weights;
    rtn.clip_value = 3;
    EXPECT_EQ(StatisticsOf(rtn), Statistics::kNone);
  }
}

TEST(Methods, QuantizeRefusesExactlyWhatNeedsStatistics) {
  const testing::Matrix weight = testing::RandomMatrix(3, 8, 1);
  for (QuantizationMethod method : testing::kAllMethods) {
    const QuantizerSpec spec = SpecOf(method);
    EXPECT_EQ(testing::TryQuantize(weight, nullptr, spec).ok(), !NeedsStatistics(spec))
        << Describe(spec);
  }
}

TEST(Methods, ReserveTheBytesOfTheirFormulas) {
  const auto bytes = [](QuantizationMethod method, ClipSearch clip) {
    QuantizerSpec spec = SpecOf(method);
    spec.clip = clip;
    return WorkingBytes(48, 96, spec);
  };
  EXPECT_EQ(bytes(kRtn, ClipSearch::kNone), 79488);
  EXPECT_EQ(bytes(kRtn, ClipSearch::kMse), 85888);
  EXPECT_EQ(bytes(kRtn, ClipSearch::kPercentile), 79488 + 4 * 32);
  EXPECT_EQ(bytes(kRtn, ClipSearch::kStd), 79488);
  EXPECT_EQ(bytes(kGptq, ClipSearch::kNone), 153216);
  EXPECT_EQ(bytes(kGptq, ClipSearch::kMse), 159616);
  EXPECT_EQ(bytes(kAwq, ClipSearch::kNone), 79488);
  EXPECT_EQ(bytes(kAwq, ClipSearch::kMse), 120576);
  EXPECT_EQ(bytes(kAwq, ClipSearch::kPercentile), 79488 + 4 * 32);
  EXPECT_EQ(bytes(kLlmInt8, ClipSearch::kMse), 82944);
  EXPECT_EQ(bytes(kNf4, ClipSearch::kMse), 78624);
}

TEST(Methods, CostTheOperationsOfTheirFormulas) {
  const auto flops = [](QuantizationMethod method, bool baselines) {
    QuantizerSpec spec = SpecOf(method);
    spec.baselines = baselines;
    return MethodOf(spec).flops(48, 96, spec);
  };
  EXPECT_EQ(flops(kRtn, false), 488448);
  EXPECT_EQ(flops(kRtn, true), 1373184);
  EXPECT_EQ(flops(kGptq, false), 737280);
  EXPECT_EQ(flops(kGptq, true), 1622016);
  EXPECT_EQ(flops(kAwq, true), 9289728);
  EXPECT_EQ(flops(kLlmInt8, true), 1373184);
  EXPECT_EQ(flops(kNf4, true), 1373184);
}

TEST(Methods, NameTheOnlyBitsThatTheyHave) {
  EXPECT_EQ(FixedBits(kLlmInt8), 8);
  EXPECT_EQ(FixedBits(kNf4), 4);
  EXPECT_EQ(FixedBits(kAwq), std::nullopt);
  EXPECT_EQ(FixedBits(static_cast<QuantizationMethod>(99)), std::nullopt);
}

TEST(Methods, AnUnknownOneIsDescribedAndRefused) {
  const QuantizerSpec spec{.method = static_cast<QuantizationMethod>(99)};
  EXPECT_EQ(Describe(spec), "unknown b4 g128 sym");
  EXPECT_FALSE(Validate(spec).ok());
  EXPECT_FALSE(NeedsStatistics(spec));
}

}  // namespace methods_test
}  // namespace ptqwatch::internal
