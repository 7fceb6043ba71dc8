#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "ptqwatch/quantizer.h"
#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch {
namespace awq_test {

using testing::CorrelatedInputs;
using ::testing::Each;
using testing::Gram;
using ::testing::HasSubstr;
using testing::Matrix;
using testing::RandomMatrix;
using testing::RunOk;
using testing::TryQuantize;

QuantizerSpec Awq(int bits, int group_size, bool symmetric) {
  QuantizerSpec spec = testing::SpecOf(QuantizationMethod::kAwq);
  spec.bits = bits;
  spec.group_size = group_size;
  spec.symmetric = symmetric;
  return spec;
}

std::vector<float> ChannelScale(const GramStatistics& statistics, double ratio) {
  std::vector<double> s;
  for (double sum : statistics.abs_sum) {
    s.push_back(std::max(std::pow(sum / static_cast<double>(statistics.tokens), ratio), 1e-4));
  }
  const double middle =
      std::sqrt(*std::max_element(s.begin(), s.end()) * *std::min_element(s.begin(), s.end()));
  std::vector<float> rounded;
  for (double value : s) rounded.push_back(static_cast<float>(value / middle));
  return rounded;
}

// W * s rounded to its grids, divided by s.
std::vector<float> Decoded(const Matrix& weight, const std::vector<float>& s,
                           const QuantizerSpec& spec) {
  const int64_t group = spec.group_size < 0 ? weight.cols : spec.group_size;
  std::vector<float> decoded;
  for (int64_t r = 0; r < weight.rows; ++r) {
    for (int64_t begin = 0; begin < weight.cols; begin += group) {
      const int64_t end = std::min(weight.cols, begin + group);
      const auto scaled = [&](int64_t c) { return weight.at(r, c) * s[static_cast<size_t>(c)]; };
      std::vector<float> of_group;
      for (int64_t c = begin; c < end; ++c) of_group.push_back(scaled(c));
      const testing::GroupGrid grid(of_group, spec);
      for (int64_t c = begin; c < end; ++c) {
        decoded.push_back(grid.Nearest(scaled(c)) / s[static_cast<size_t>(c)]);
      }
    }
  }
  return decoded;
}

TEST(Awq, AgreesWithTheDefinition) {
  uint64_t seed = 0;
  for (const auto& [rows, cols, tokens, group] : {std::tuple{1, 1, 3, -1},
                                                  {5, 1, 9, 8},
                                                  {1, 40, 60, 16},
                                                  {20, 70, 50, 32},
                                                  {33, 130, 300, 128},
                                                  {8, 24, 1, -1}}) {
    const Matrix weight = RandomMatrix(rows, cols, ++seed);
    const GramStatistics statistics = Gram(CorrelatedInputs(tokens, cols, ++seed));
    for (int bits : {2, 3, 4, 8}) {
      for (bool symmetric : {true, false}) {
        const QuantizerSpec spec = Awq(bits, group, symmetric);
        SCOPED_TRACE(Describe(spec) + " " + std::to_string(rows) + "x" + std::to_string(cols));
        const QuantizedWeight got = RunOk(weight, &statistics, spec);
        EXPECT_EQ(got.status, LayerStatus::kOk);
        ASSERT_EQ(got.search_losses.size(), 20u);
        size_t best = 0;
        for (size_t i = 0; i < 20; ++i) {
          const std::vector<float> s = ChannelScale(statistics, static_cast<double>(i) / 20);
          const double loss =
              testing::NaiveTrace(weight.values, Decoded(weight, s, spec), statistics);
          ASSERT_NEAR(got.search_losses[i], loss, 1e-6 * loss) << i;
          if (got.search_losses[i] < got.search_losses[best]) best = i;
        }
        EXPECT_EQ(got.channel_scale_ratio, static_cast<double>(best) / 20);
        EXPECT_EQ(got.channel_scale, ChannelScale(statistics, got.channel_scale_ratio));
        EXPECT_EQ(got.dequantized, Decoded(weight, got.channel_scale, spec));
        EXPECT_EQ(got.loss, got.search_losses[best]);
        EXPECT_EQ(got.rtn_loss, got.search_losses[0]);
        EXPECT_GT(*got.output_energy, 0);
        for (size_t i = 0; i < got.codes.size(); ++i) {
          const size_t c = i % static_cast<size_t>(cols);
          const size_t groups = got.scale.size() / static_cast<size_t>(rows);
          const size_t g = i / static_cast<size_t>(cols) * groups +
                           (group < 0 ? 0 : c / static_cast<size_t>(group));
          ASSERT_EQ(got.dequantized[i], got.scale[g] *
                                            (static_cast<float>(got.codes[i]) - got.zero[g]) /
                                            got.channel_scale[c]);
        }
      }
    }
  }
}

TEST(Awq, TakesARangeByRuleAtEveryChannelScale) {
  const Matrix weight = RandomMatrix(20, 70, 60);
  const GramStatistics statistics = Gram(CorrelatedInputs(50, 70, 61));
  QuantizerSpec spec = Awq(5, 32, true);
  spec.narrow_range = true;
  for (const auto& [clip, value] : {std::pair{ClipSearch::kNone, 0.0},
                                    {ClipSearch::kPercentile, 97.5},
                                    {ClipSearch::kStd, 2.0}}) {
    spec.clip = clip;
    spec.clip_value = value;
    const QuantizedWeight got = RunOk(weight, &statistics, spec);
    for (size_t i : {0, 7, 19}) {
      const std::vector<float> s = ChannelScale(statistics, static_cast<double>(i) / 20);
      const double loss = testing::NaiveTrace(weight.values, Decoded(weight, s, spec), statistics);
      EXPECT_NEAR(got.search_losses[i], loss, 1e-6 * loss) << Describe(spec);
    }
    EXPECT_EQ(got.dequantized, Decoded(weight, got.channel_scale, spec)) << Describe(spec);
    const int64_t groups = 20 * 3;
    EXPECT_EQ(got.clipped_groups, clip == ClipSearch::kPercentile ? groups : got.clipped_groups);
    EXPECT_EQ(got.clipped_groups > 0, clip != ClipSearch::kNone) << Describe(spec);
  }
}

// Large enough for float32 products in the losses.
TEST(Awq, AgreesWithTheDefinitionOnALargerMatrix) {
  const Matrix weight = RandomMatrix(220, 290, 30);
  const GramStatistics statistics = Gram(CorrelatedInputs(400, 290, 31));
  const QuantizerSpec spec = Awq(4, 128, false);
  const QuantizedWeight got = RunOk(weight, &statistics, spec);
  for (size_t i : {0, 7, 19}) {
    const std::vector<float> s = ChannelScale(statistics, static_cast<double>(i) / 20);
    const double loss = testing::NaiveTrace(weight.values, Decoded(weight, s, spec), statistics);
    EXPECT_NEAR(got.search_losses[i], loss, 1e-4 * loss) << i;
  }
}

TEST(Awq, IsNeverWorseThanRtnAndOftenBetter) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const Matrix weight = RandomMatrix(16, 160, seed);
    const GramStatistics statistics = Gram(CorrelatedInputs(500, 160, seed + 100));
    QuantizerSpec spec = Awq(4, 32, true);
    const QuantizedWeight got = RunOk(weight, &statistics, spec);
    EXPECT_LT(*got.loss, 0.8 * *got.rtn_loss);
    EXPECT_GT(got.channel_scale_ratio, 0);
    spec.method = QuantizationMethod::kRtn;
    EXPECT_NEAR(*RunOk(weight, &statistics, spec).loss, *got.rtn_loss, 1e-12 * *got.rtn_loss);
  }
}

TEST(Awq, EqualsRtnWhenAllInputsAreAlike) {
  Matrix inputs = RandomMatrix(100, 30, 5);
  for (float& x : inputs.values) x = x > 0 ? 1.0f : -1.0f;
  const Matrix weight = RandomMatrix(6, 30, 6);
  const GramStatistics statistics = Gram(inputs);
  QuantizerSpec spec = Awq(3, 8, false);
  const QuantizedWeight awq = RunOk(weight, &statistics, spec);
  spec.method = QuantizationMethod::kRtn;
  const QuantizedWeight rtn = RunOk(weight, &statistics, spec);
  EXPECT_EQ(awq.channel_scale_ratio, 0);
  EXPECT_THAT(awq.channel_scale, Each(1.0f));
  EXPECT_EQ(awq.codes, rtn.codes);
  EXPECT_EQ(awq.scale, rtn.scale);
  EXPECT_EQ(awq.dequantized, rtn.dequantized);
}

TEST(Awq, HandlesDeadAndHugeInputs) {
  Matrix inputs = CorrelatedInputs(200, 64, 7);
  for (int64_t r = 0; r < inputs.rows; ++r) {
    inputs.at(r, 3) = 0;
    inputs.at(r, 4) *= 1000;
  }
  const Matrix weight = RandomMatrix(10, 64, 8);
  const GramStatistics statistics = Gram(inputs);
  const QuantizedWeight got = RunOk(weight, &statistics, Awq(4, 32, false));
  EXPECT_EQ(got.dead_columns, 1);
  EXPECT_LT(*got.loss, *got.rtn_loss);
  for (float w : got.dequantized) EXPECT_TRUE(std::isfinite(w));
  const GramStatistics zeros = Gram(Matrix(9, 64));
  const QuantizedWeight none = RunOk(weight, &zeros, Awq(4, 32, false));
  EXPECT_EQ(none.status, LayerStatus::kOk);
  EXPECT_THAT(none.search_losses, Each(0.0));
  EXPECT_EQ(none.channel_scale_ratio, 0);
}

TEST(Awq, PassesOverScalesThatOverflow) {
  // The scale of the loud channel is what takes W * s beyond f16.
  Matrix inputs(20, 2);
  for (int64_t r = 0; r < 20; ++r) {
    inputs.at(r, 0) = r % 2 == 0 ? 1e6f : -1e6f;
    inputs.at(r, 1) = 1e-3f;
  }
  Matrix weight(1, 2);
  weight.values = {4e5f, 1};
  const GramStatistics statistics = Gram(inputs);
  QuantizerSpec spec = Awq(4, -1, true);
  spec.scale_dtype = ScaleDtype::kFloat16;
  const QuantizedWeight got = RunOk(weight, &statistics, spec);
  EXPECT_EQ(got.status, LayerStatus::kOk);
  EXPECT_TRUE(std::isfinite(got.search_losses[0]));
  EXPECT_EQ(got.search_losses[19], std::numeric_limits<double>::infinity());
  weight.values[0] = 3e6f;
  const QuantizedWeight none = RunOk(weight, &statistics, spec);
  EXPECT_EQ(none.status, LayerStatus::kUnsupported);
  EXPECT_TRUE(none.codes.empty());
}

TEST(Awq, NeverLosesByClipping) {
  int kept = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Matrix weight = RandomMatrix(12, 96, seed);
    for (float& w : weight.values) w = seed % 2 == 0 ? w * w * w : w;
    const GramStatistics statistics = Gram(CorrelatedInputs(300, 96, seed + 50));
    for (bool symmetric : {true, false}) {
      QuantizerSpec spec = Awq(seed % 3 == 0 ? 3 : 4, seed % 4 == 0 ? -1 : 32, symmetric);
      const QuantizedWeight whole = RunOk(weight, &statistics, spec);
      spec.clip = ClipSearch::kMse;
      const QuantizedWeight clipped = RunOk(weight, &statistics, spec);
      EXPECT_LE(*clipped.loss, *whole.loss);
      EXPECT_EQ(clipped.search_losses, whole.search_losses);
      EXPECT_EQ(clipped.channel_scale, whole.channel_scale);
      EXPECT_EQ(clipped.rtn_loss, whole.rtn_loss);
      const double loss = testing::NaiveTrace(weight.values, clipped.dequantized, statistics);
      EXPECT_NEAR(*clipped.loss, loss, 1e-6 * loss);
      kept += clipped.clipped_groups > 0;
    }
  }
  EXPECT_GT(kept, 10);
}

// If all inputs are alike, the errors of the groups add up before they are squared, so the best
// clipping of each group need not be the best of the row.
TEST(Awq, LeavesClippingOutWhenTheLayerWouldLoseByIt) {
  Matrix inputs = RandomMatrix(50, 8, 60);
  for (int64_t r = 0; r < inputs.rows; ++r) {
    for (int64_t c = 1; c < 8; ++c) inputs.at(r, c) = inputs.at(r, 0);
  }
  const GramStatistics statistics = Gram(inputs);
  int kept = 0;
  int left_out = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Matrix weight = RandomMatrix(1, 8, seed + 60);
    QuantizerSpec spec = Awq(2, 4, true);
    const QuantizedWeight whole = RunOk(weight, &statistics, spec);
    spec.clip = ClipSearch::kMse;
    const QuantizedWeight clipped = RunOk(weight, &statistics, spec);
    EXPECT_LE(*clipped.loss, *whole.loss);
    EXPECT_EQ(clipped.status, LayerStatus::kOk);
    if (clipped.status_detail.empty()) {
      kept += clipped.clipped_groups > 0;
      continue;
    }
    ++left_out;
    EXPECT_THAT(clipped.status_detail, HasSubstr("not clipped"));
    EXPECT_EQ(clipped.clipped_groups, 0);
    EXPECT_EQ(clipped.codes, whole.codes);
    EXPECT_EQ(clipped.scale, whole.scale);
    EXPECT_EQ(clipped.dequantized, whole.dequantized);
    EXPECT_EQ(clipped.loss, whole.loss);
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(left_out, 0);
}

TEST(Awq, RepeatsBitForBitAtAnyThreadCount) {
  const Matrix weight = RandomMatrix(40, 150, 20);
  const GramStatistics statistics = Gram(CorrelatedInputs(300, 150, 21));
  QuantizerSpec spec = Awq(4, 32, true);
  spec.clip = ClipSearch::kMse;
  const QuantizedWeight expected = RunOk(weight, &statistics, spec);
  for (int threads : {1, 2, 5}) {
    ExecutionContext context;
    context.threads = threads;
    const absl::StatusOr<QuantizedWeight> got = Quantize(weight.view(), &statistics, spec, context);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->codes, expected.codes);
    EXPECT_EQ(got->search_losses, expected.search_losses);
    EXPECT_EQ(got->scale, expected.scale);
    EXPECT_EQ(got->loss, expected.loss);
  }
}

TEST(Awq, GivesRtnCodesWithoutTokens) {
  const Matrix weight = RandomMatrix(4, 20, 22);
  const GramStatistics none = Gram(Matrix(0, 20));
  const QuantizedWeight got = RunOk(weight, &none, Awq(4, 32, true));
  EXPECT_EQ(got.status, LayerStatus::kTooFewTokens);
  EXPECT_THAT(got.status_detail, HasSubstr("0 tokens for 20 inputs; awq needs 1"));
  EXPECT_EQ(got.codes, RunOk(weight, nullptr, testing::SpecOf(QuantizationMethod::kRtn)).codes);
  EXPECT_TRUE(got.channel_scale.empty());
  EXPECT_TRUE(got.search_losses.empty());
  EXPECT_FALSE(got.loss.has_value());
}

TEST(Awq, NamesWhatIsMissing) {
  const Matrix weight = RandomMatrix(4, 6, 23);
  const QuantizerSpec spec = Awq(4, 32, true);
  absl::Status status = TryQuantize(weight, nullptr, spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("awq needs statistics"));
  const GramStatistics good = Gram(CorrelatedInputs(9, 6, 24));
  GramStatistics statistics = good;
  statistics.abs_sum.clear();
  status = TryQuantize(weight, &statistics, spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("abs_sum has 0 numbers"));
  statistics = good;
  statistics.abs_sum[2] = -1;
  status = TryQuantize(weight, &statistics, spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("abs_sum[2] is -1"));
  statistics.abs_sum[2] = std::nan("");
  const QuantizedWeight got = RunOk(weight, &statistics, spec);
  EXPECT_EQ(got.status, LayerStatus::kNonFinite);
  EXPECT_THAT(got.status_detail, HasSubstr("abs_sum[2]"));
}

}  // namespace awq_test
}  // namespace ptqwatch
