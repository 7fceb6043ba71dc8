#include "quantize/kernels/gram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "quantize/kernels/non_finite.h"
#include "unit/quantize/reference.h"

namespace ptqwatch {
namespace gram_test {

using testing::Gram;
using ::testing::HasSubstr;
using testing::Matrix;
using testing::NaiveGram;

void ExpectClose(const GramStatistics& got, const GramStatistics& expected) {
  ASSERT_EQ(got.inputs, expected.inputs);
  EXPECT_EQ(got.tokens, expected.tokens);
  EXPECT_EQ(got.skipped_rows, expected.skipped_rows);
  ASSERT_EQ(got.sum.size(), expected.sum.size());
  const size_t d = static_cast<size_t>(got.inputs);
  for (size_t i = 0; i < d; ++i) {
    for (size_t j = 0; j < d; ++j) {
      // |x_i . x_j| <= |x_i| |x_j|: the bound that rounding errors scale with.
      const double size = std::sqrt(expected.sum[i * d + i] * expected.sum[j * d + j]);
      ASSERT_NEAR(got.sum[i * d + j], expected.sum[i * d + j], 2e-6 * size + 1e-30)
          << i << " " << j;
    }
  }
}

TEST(GramAccumulator, AgreesWithFloat64OnEveryTarget) {
  for (int64_t target : testing::UsableTargets()) {
    const testing::OnlyTarget only(target);
    for (int64_t rows : {1, 2, 127, 128, 129, 256, 300, 1024, 1100}) {
      const Matrix x = testing::CorrelatedInputs(rows, 53, static_cast<uint64_t>(rows));
      ExpectClose(Gram(x), NaiveGram(x));
    }
    for (int64_t cols : {1, 2, 3, 4, 23, 24, 47, 48, 49, 97, 145}) {
      const Matrix x = testing::CorrelatedInputs(70, cols, static_cast<uint64_t>(cols));
      ExpectClose(Gram(x), NaiveGram(x));
    }
  }
}

TEST(GramAccumulator, IsExactOnSmallIntegers) {
  Matrix x = testing::RandomMatrix(700, 61, 1);
  for (float& value : x.values) value = std::round(3 * value);
  EXPECT_EQ(Gram(x).sum, NaiveGram(x).sum);
}

TEST(GramAccumulator, RepeatsBitForBit) {
  const Matrix x = testing::CorrelatedInputs(1500, 100, 2);
  EXPECT_EQ(Gram(x).sum, Gram(x).sum);
}

TEST(GramAccumulator, AddsUpOverCalls) {
  const Matrix x = testing::CorrelatedInputs(700, 40, 3);
  ExecutionContext context;
  GramAccumulator gram(40);
  for (int64_t begin = 0; begin < 700; begin += 100) {
    ASSERT_TRUE(
        gram.Add({.data = x.values.data() + begin * 40, .rows = 100, .cols = 40}, context).ok());
  }
  EXPECT_EQ(gram.tokens(), 700);
  ExpectClose(gram.Take(), NaiveGram(x));
  EXPECT_EQ(gram.tokens(), 0);
  const GramStatistics empty = gram.Take();
  EXPECT_EQ(empty.sum, std::vector<double>(1600, 0.0));
}

TEST(GramAccumulator, SkipsAndCountsRowsThatAreNotFinite) {
  Matrix x = testing::CorrelatedInputs(1300, 30, 4);
  x.at(0, 29) = std::nanf("");
  x.at(255, 0) = std::numeric_limits<float>::infinity();
  for (int64_t r = 1000; r < 1020; ++r) x.at(r, r % 30) = -std::numeric_limits<float>::infinity();
  const GramStatistics got = Gram(x);
  EXPECT_EQ(got.skipped_rows, 22);
  EXPECT_EQ(got.tokens, 1278);
  ExpectClose(got, NaiveGram(x));
}

TEST(GramAccumulator, SumsNothingWhenNoRowIsFinite) {
  Matrix x(3, 5);
  for (float& value : x.values) value = std::nanf("");
  const GramStatistics got = Gram(x);
  EXPECT_EQ(got.tokens, 0);
  EXPECT_EQ(got.skipped_rows, 3);
  EXPECT_EQ(got.sum, std::vector<double>(25, 0.0));
}

TEST(GramAccumulator, RejectsOtherWidths) {
  ExecutionContext context;
  GramAccumulator gram(4);
  const std::vector<float> x(8);
  absl::Status status = gram.Add({.data = x.data(), .rows = 1, .cols = 8}, context);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("4 inputs"));
  status = gram.Add({.data = nullptr, .rows = 2, .cols = 4}, context);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  status = gram.Add({.data = x.data(), .rows = -1, .cols = 4}, context);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(gram.Add({.data = nullptr, .rows = 0, .cols = 4}, context).ok());
}

TEST(GramAccumulator, IsEmptyAfterACancelledAdd) {
  const Matrix x = testing::RandomMatrix(50, 60, 5);
  ExecutionContext context;
  GramAccumulator gram(60);
  ASSERT_TRUE(gram.Add(x.view(), context).ok());
  context.cancel.Cancel();
  EXPECT_EQ(gram.Add(x.view(), context).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(gram.tokens(), 0);
  EXPECT_EQ(gram.Take().sum, std::vector<double>(3600, 0.0));
}

double Trace(const Matrix& e, const GramStatistics& h) {
  ExecutionContext context;
  const auto row = [&](int64_t r, float*) { return e.values.data() + r * e.cols; };
  absl::StatusOr<double> trace = internal::QuadraticTrace(
      e.rows, e.cols, internal::SharedRowSource(row), h.sum.data(), context);
  return trace.value_or(std::nan("")) * 2 / static_cast<double>(h.tokens);
}

TEST(QuadraticTrace, AgreesWithFloat64OnEveryTarget) {
  const GramStatistics h = NaiveGram(testing::CorrelatedInputs(150, 131, 6));
  for (int64_t rows : {1, 5, 1100}) {  // the last one is large enough for float32
    const Matrix e = testing::RandomMatrix(rows, 131, 7);
    const double expected = testing::NaiveTrace(e.values, std::vector<float>(e.values.size()), h);
    for (int64_t target : testing::UsableTargets()) {
      const testing::OnlyTarget only(target);
      EXPECT_NEAR(Trace(e, h), expected, 1e-5 * expected);
    }
  }
}

// Rows that nearly lie in the null space of H: float32 products alone would give noise.
TEST(QuadraticTrace, KeepsItsDigitsWhenTermsCancel) {
  constexpr int64_t kCols = 130;
  Matrix x(200, kCols);
  const Matrix noise = testing::RandomMatrix(200, kCols, 8);
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) x.at(r, c) = 1.0f + 1e-4f * noise.at(r, c);
  }
  Matrix e = testing::RandomMatrix(1100, kCols, 9);
  for (int64_t r = 0; r < e.rows; ++r) {
    for (int64_t c = 0; c + 1 < kCols; c += 2) e.at(r, c + 1) = -e.at(r, c);
  }
  const GramStatistics h = NaiveGram(x);
  const double expected = testing::NaiveTrace(e.values, std::vector<float>(e.values.size()), h);
  EXPECT_NEAR(Trace(e, h), expected, 1e-5 * expected);
}

TEST(QuadraticTrace, SeesNumbersWhoseSquaresUnderflowFloat32) {
  const GramStatistics h = NaiveGram(testing::RandomMatrix(150, 130, 10));
  Matrix e = testing::RandomMatrix(1100, 130, 11);
  for (float& value : e.values) value *= 1e-25f;
  const double expected = testing::NaiveTrace(e.values, std::vector<float>(e.values.size()), h);
  EXPECT_GT(expected, 0);
  EXPECT_NEAR(Trace(e, h), expected, 1e-5 * expected);
}

TEST(AnyNonFinite, FindsThemAnywhere) {
  std::vector<float> values(67, 3e38f);
  EXPECT_FALSE(internal::AnyNonFinite(values.data(), 67));
  EXPECT_FALSE(internal::AnyNonFinite(values.data(), 0));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = i % 2 == 0 ? std::nanf("") : -std::numeric_limits<float>::infinity();
    EXPECT_TRUE(internal::AnyNonFinite(values.data(), 67)) << i;
    values[i] = -std::numeric_limits<float>::denorm_min();
  }
}

}  // namespace gram_test
}  // namespace ptqwatch
