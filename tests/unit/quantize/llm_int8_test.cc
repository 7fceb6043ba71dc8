#include "ptqwatch/offline/llm_int8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch {
namespace {

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
  ExecutionContext context;
  absl::StatusOr<Int8Rows> rows = QuantizeInt8Rows(m.view(), dtype, context);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? *rows : Int8Rows{};
}

LlmInt8Product Multiply(const Matrix& x, const Matrix& w, double threshold) {
  ExecutionContext context;
  absl::StatusOr<LlmInt8Product> product = MultiplyLlmInt8(x.view(), w.view(), threshold, context);
  EXPECT_TRUE(product.ok()) << product.status();
  return product.ok() ? *product : LlmInt8Product{};
}

TEST(Int8Rows, MapsTheLargestMagnitudeTo127) {
  Matrix m(3, 4);
  m.values = {1, -2, 0.5f, 0, 0, 0, 0, 0, -1000, 3, 4, 1000};
  const Int8Rows rows = Rows(m);
  EXPECT_THAT(rows.absmax, ElementsAre(2.0f, 0.0f, 1000.0f));
  // 63.5 and 31.75; zeros; 0.381 and 0.508.
  EXPECT_THAT(rows.codes, ElementsAre(64, -127, 32, 0, 0, 0, 0, 0, -127, 0, 1, 127));
}

TEST(Int8Rows, RoundsHalfToEven) {
  Matrix m(1, 5);
  m.values = {127, 0.5f, 1.5f, 2.5f, -2.5f};
  EXPECT_THAT(Rows(m).codes, ElementsAre(127, 0, 2, 2, -2));
}

TEST(Int8Rows, KeepsTheSmallestNumbers) {
  Matrix m(1, 3);
  m.values = {1e-40f, -1e-40f, 0};
  EXPECT_THAT(Rows(m).codes, ElementsAre(127, -127, 0));
}

TEST(Int8Rows, RoundsAbsmaxToItsDtypeFirst) {
  Matrix m(1, 2);
  m.values = {1.003f, 0.5f};
  const Int8Rows rows = Rows(m, ScaleDtype::kBFloat16);
  EXPECT_THAT(rows.absmax, ElementsAre(1.0f));
  EXPECT_THAT(rows.codes, ElementsAre(127, 64));  // 127.381 and 63.5
  // A denormal absmax of f16 is far from the exact one: codes stay within their range.
  m.values = {3.5e-8f, -3.5e-8f};
  EXPECT_THAT(Rows(m, ScaleDtype::kFloat16).codes, ElementsAre(75, -75));
  m.values = {8.9e-8f, -8.9e-8f};
  EXPECT_THAT(Rows(m, ScaleDtype::kFloat16).codes, ElementsAre(127, -127));
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
  EXPECT_FALSE(
      QuantizeInt8Rows({.data = nullptr, .rows = 2, .cols = 2}, ScaleDtype::kFloat32, context)
          .ok());
  EXPECT_FALSE(
      QuantizeInt8Rows({.data = nullptr, .rows = -1, .cols = 2}, ScaleDtype::kFloat32, context)
          .ok());
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
      EXPECT_EQ(got.codes[at], rows.codes[at] + 128);
      const double decoded = rows.codes[at] * static_cast<double>(absmax) / 127;
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

TEST(LlmInt8Product, SplitsOutliersFromCodes) {
  Matrix x(2, 4);
  x.values = {1, 7, -0.5f, 2, 0.25f, 3, -6, 1};
  const Matrix w = RandomMatrix(5, 4, 9);
  const LlmInt8Product got = Multiply(x, w, 6);
  EXPECT_THAT(got.outlier_columns, ElementsAre(1, 2));
  // Row 0: 1, -0.5, 2 are left, then column 2 goes; row 1: 0.25, 3, 1 are left, then column 1.
  EXPECT_THAT(got.inputs.absmax, ElementsAre(2.0f, 3.0f));
  EXPECT_THAT(got.inputs.codes, ElementsAre(64, 0, 0, 127, 11, 0, 0, 42));
  const Int8Rows rows = Rows(w);
  for (size_t t = 0; t < 2; ++t) {
    for (size_t o = 0; o < 5; ++o) {
      double expected = 0;
      for (size_t c = 0; c < 4; ++c) {
        if (c == 1 || c == 2) {
          expected +=
              static_cast<double>(x.values[4 * t + c]) * static_cast<double>(w.values[4 * o + c]);
        } else {
          expected += got.inputs.codes[4 * t + c] / 127.0 * rows.codes[4 * o + c] / 127.0 *
                      static_cast<double>(got.inputs.absmax[t]) *
                      static_cast<double>(rows.absmax[o]);
        }
      }
      EXPECT_NEAR(got.output[5 * t + o], expected, 1e-12);
    }
  }
}

TEST(LlmInt8Product, IsNearTheFullProduct) {
  const Matrix x = RandomMatrix(20, 300, 10);
  const Matrix w = RandomMatrix(8, 300, 11);
  const LlmInt8Product got = Multiply(x, w, 0);
  EXPECT_THAT(got.outlier_columns, IsEmpty());
  double difference = 0;
  double norm = 0;
  for (int64_t t = 0; t < 20; ++t) {
    for (int64_t o = 0; o < 8; ++o) {
      double exact = 0;
      for (int64_t c = 0; c < 300; ++c) {
        exact += static_cast<double>(x.at(t, c)) * static_cast<double>(w.at(o, c));
      }
      difference += std::pow(got.output[static_cast<size_t>(t * 8 + o)] - exact, 2);
      norm += exact * exact;
    }
  }
  EXPECT_LT(std::sqrt(difference / norm), 0.02);
  EXPECT_GT(difference, 0);
}

TEST(LlmInt8Product, SumsLongRowsExactly) {
  Matrix x(1, 200000);
  for (float& v : x.values) v = 1;
  const LlmInt8Product got = Multiply(x, x, 0);
  EXPECT_DOUBLE_EQ(got.output[0], 200000.0);
}

TEST(LlmInt8Product, RefusesWhatDoesNotFit) {
  ExecutionContext context;
  Matrix x = RandomMatrix(3, 4, 12);
  const Matrix w = RandomMatrix(2, 5, 13);
  const auto code = [&](MatrixView a, MatrixView b, double threshold) {
    return MultiplyLlmInt8(a, b, threshold, context).status().code();
  };
  const absl::StatusCode invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code(x.view(), w.view(), 6), invalid);
  EXPECT_EQ(code(x.view(), {.data = nullptr, .rows = 2, .cols = 4}, 6), invalid);
  EXPECT_EQ(code(x.view(), x.view(), -1), invalid);
  EXPECT_EQ(code(x.view(), x.view(), std::nan("")), invalid);
  x.at(1, 1) = std::numeric_limits<float>::infinity();
  EXPECT_EQ(code(x.view(), RandomMatrix(2, 4, 14).view(), 6), invalid);
  EXPECT_EQ(code(x.view(), RandomMatrix(2, 4, 14).view(), 0), invalid);
  EXPECT_EQ(code(RandomMatrix(2, 4, 14).view(), x.view(), 6), invalid);
  EXPECT_TRUE(Multiply(Matrix(0, 4), Matrix(3, 4), 6).output.empty());
  context.cancel.Cancel();
  EXPECT_EQ(code(w.view(), w.view(), 6), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace ptqwatch
