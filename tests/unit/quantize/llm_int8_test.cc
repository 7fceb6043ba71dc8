#include "quantize/llm_int8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch {
namespace llm_int8_test {

using internal::Int8Rows;
using internal::QuantizeInt8Rows;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Matrix;
using testing::RandomMatrix;
using testing::RunOk;
using testing::TryQuantize;

QuantizerSpec LlmInt8(double threshold) {
  QuantizerSpec spec = testing::SpecOf(QuantizationMethod::kLlmInt8);
  spec.outlier_threshold = threshold;
  return spec;
}

Int8Rows Rows(const Matrix& m, ScaleDtype dtype = ScaleDtype::kFloat32) {
  absl::StatusOr<Int8Rows> rows = QuantizeInt8Rows(m.view(), dtype);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? *rows : Int8Rows{};
}

std::vector<int> CodesOf(const Matrix& m, ScaleDtype dtype = ScaleDtype::kFloat32) {
  std::vector<int> codes;
  for (const uint8_t code : Rows(m, dtype).codes) codes.push_back(code - 128);
  return codes;
}

TEST(Int8Rows, MapsTheLargestMagnitudeTo127) {
  Matrix m(3, 4);
  m.values = {1, -2, 0.5f, 0, 0, 0, 0, 0, -1000, 3, 4, 1000};
  const Int8Rows rows = Rows(m);
  EXPECT_THAT(rows.absmax, ElementsAre(2.0f, 0.0f, 1000.0f));
  // 63.5 and 31.75; zeros; 0.381 and 0.508.
  EXPECT_THAT(CodesOf(m), ElementsAre(64, -127, 32, 0, 0, 0, 0, 0, -127, 0, 1, 127));
}

TEST(Int8Rows, RoundsHalfToEven) {
  Matrix m(1, 5);
  m.values = {127, 0.5f, 1.5f, 2.5f, -2.5f};
  EXPECT_THAT(CodesOf(m), ElementsAre(127, 0, 2, 2, -2));
}

TEST(Int8Rows, KeepsTheSmallestNumbers) {
  Matrix m(1, 3);
  m.values = {1e-40f, -1e-40f, 0};
  EXPECT_THAT(CodesOf(m), ElementsAre(127, -127, 0));
}

TEST(Int8Rows, RoundsAbsmaxToItsDtypeFirst) {
  Matrix m(1, 2);
  m.values = {1.003f, 0.5f};
  const Int8Rows rows = Rows(m, ScaleDtype::kBFloat16);
  EXPECT_THAT(rows.absmax, ElementsAre(1.0f));
  EXPECT_THAT(CodesOf(m, ScaleDtype::kBFloat16), ElementsAre(127, 64));  // 127.381 and 63.5
  // A denormal absmax of f16 is far from the exact one: codes stay within their range.
  m.values = {3.5e-8f, -3.5e-8f};
  EXPECT_THAT(CodesOf(m, ScaleDtype::kFloat16), ElementsAre(75, -75));
  m.values = {8.9e-8f, -8.9e-8f};
  EXPECT_THAT(CodesOf(m, ScaleDtype::kFloat16), ElementsAre(127, -127));
}

// The quotient in float64 is rounded twice, which shows in no case.
TEST(Int8Rows, DecodesWithOneRounding) {
  std::mt19937_64 generator(5);
  std::vector<float> ranges = {1e-45f, 3e-39f, 1.2e-38f, 9.9e-31f, 1e-30f, 1e36f, 1.1e36f, 3.4e38f};
  for (int i = 0; i < 3000; ++i) {
    ranges.push_back(std::exp2(static_cast<float>(generator() % 200) - 100) *
                     (1 + static_cast<float>(generator() % (1 << 23)) * 0x1p-23f));
  }
  Matrix m(1, 255);
  for (const float range : ranges) {
    for (int n = -127; n <= 127; ++n) {
      m.values[static_cast<size_t>(n + 127)] =
          static_cast<float>(n / 127.0 * static_cast<double>(range));
    }
    const Int8Rows rows = Rows(m);
    ASSERT_THAT(rows.absmax, ElementsAre(range));
    for (size_t i = 0; i < rows.codes.size(); ++i) {
      const double exact = (rows.codes[i] - 128) * static_cast<double>(range) / 127;
      ASSERT_EQ(rows.dequantized[i], static_cast<float>(exact)) << range << " " << i;
    }
    EXPECT_EQ(rows.codes[0], 1);
    EXPECT_EQ(rows.codes[254], 255);
  }
}

TEST(Int8Rows, RefusesWhatHasNoCodes) {
  ExecutionContext context;
  Matrix m = RandomMatrix(3, 4, 1);
  m.at(2, 1) = std::nanf("");
  absl::Status status = QuantizeInt8Rows(m.view(), ScaleDtype::kFloat32, context).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("row 2"));
  m.at(2, 1) = 1e5f;
  status = QuantizeInt8Rows(m.view(), ScaleDtype::kFloat16, context).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("f16"));
  EXPECT_TRUE(
      QuantizeInt8Rows({.data = nullptr, .rows = 0, .cols = 2}, ScaleDtype::kFloat32, context)
          ->codes.empty());
  context.cancel.Cancel();
  EXPECT_EQ(QuantizeInt8Rows(m.view(), ScaleDtype::kFloat32, context).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(LlmInt8, KeepsOutlierColumns) {
  Matrix inputs = RandomMatrix(60, 30, 2);
  inputs.at(17, 4) = -6.0f;
  inputs.at(3, 29) = 50.0f;
  inputs.at(5, 8) = std::nextafter(6.0f, 0.0f);
  const Matrix weight = RandomMatrix(7, 30, 3);
  const GramStatistics statistics = testing::Gram(inputs);
  const QuantizedWeight got = RunOk(weight, &statistics, LlmInt8(6));
  EXPECT_EQ(got.status, LayerStatus::kOk);
  EXPECT_THAT(got.outlier_columns, ElementsAre(4, 29));
  const Int8Rows rows = Rows(weight);
  for (int64_t r = 0; r < 7; ++r) {
    for (int64_t c = 0; c < 30; ++c) {
      const size_t at = static_cast<size_t>(r * 30 + c);
      const float absmax = rows.absmax[static_cast<size_t>(r)];
      EXPECT_EQ(got.codes[at], rows.codes[at]);
      const double decoded = (rows.codes[at] - 128) * static_cast<double>(absmax) / 127;
      const bool kept = c == 4 || c == 29;
      EXPECT_EQ(got.dequantized[at], kept ? weight.values[at] : static_cast<float>(decoded));
    }
  }
  EXPECT_THAT(got.zero, Each(128.0f));
  EXPECT_EQ(got.scale[3], rows.absmax[3] / 127);
  const double loss = testing::NaiveTrace(weight.values, got.dequantized, statistics);
  EXPECT_NEAR(*got.loss, loss, 1e-9 * loss);
  EXPECT_LT(*got.loss, *got.rtn_loss);
  const QuantizedWeight all = RunOk(weight, &statistics, LlmInt8(0));
  EXPECT_THAT(all.outlier_columns, IsEmpty());
  EXPECT_EQ(all.loss, got.rtn_loss);
}

TEST(LlmInt8, MayKeepEveryColumn) {
  Matrix inputs(2, 5);
  for (float& x : inputs.values) x = 9;
  const Matrix weight = RandomMatrix(3, 5, 4);
  const GramStatistics statistics = testing::Gram(inputs);
  const QuantizedWeight got = RunOk(weight, &statistics, LlmInt8(6));
  EXPECT_EQ(got.dequantized, weight.values);
  EXPECT_EQ(got.loss, 0.0);
}

TEST(LlmInt8, NeedsAbsMaxOnlyForOutliers) {
  const Matrix weight = RandomMatrix(3, 5, 5);
  absl::Status status = TryQuantize(weight, nullptr, LlmInt8(6)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("llm_int8 needs statistics"));
  EXPECT_EQ(RunOk(weight, nullptr, LlmInt8(0)).codes.size(), 15u);

  GramStatistics statistics = testing::Gram(RandomMatrix(9, 5, 6));
  statistics.abs_max.clear();
  status = TryQuantize(weight, &statistics, LlmInt8(6)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("abs_max has 0 numbers"));
  EXPECT_EQ(RunOk(weight, &statistics, LlmInt8(0)).status, LayerStatus::kOk);
}

TEST(LlmInt8, SaysThatOutliersAreNotKnownWithoutTokens) {
  const Matrix weight = RandomMatrix(3, 5, 7);
  const GramStatistics none = testing::Gram(Matrix(0, 5));
  const QuantizedWeight got = RunOk(weight, &none, LlmInt8(6));
  EXPECT_EQ(got.status, LayerStatus::kTooFewTokens);
  EXPECT_THAT(got.status_detail, HasSubstr("0 tokens"));
  EXPECT_EQ(got.codes, RunOk(weight, nullptr, LlmInt8(0)).codes);
  EXPECT_EQ(RunOk(weight, &none, LlmInt8(0)).status, LayerStatus::kOk);
}

TEST(LlmInt8, IsUnsupportedWhenAbsmaxOverflowsItsDtype) {
  Matrix weight = RandomMatrix(3, 5, 8);
  weight.at(1, 1) = -7e4f;
  QuantizerSpec spec = LlmInt8(0);
  spec.scale_dtype = ScaleDtype::kFloat16;
  const QuantizedWeight got = RunOk(weight, nullptr, spec);
  EXPECT_EQ(got.status, LayerStatus::kUnsupported);
  EXPECT_TRUE(got.codes.empty());
}

TEST(LlmInt8, DecodesTheLargestWeightsThereAre) {
  Matrix weight(1, 2);
  weight.values = {std::numeric_limits<float>::max(), -1};
  EXPECT_EQ(RunOk(weight, nullptr, LlmInt8(0)).dequantized[0], weight.values[0]);
}

}  // namespace llm_int8_test
}  // namespace ptqwatch
