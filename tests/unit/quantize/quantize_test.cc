#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <string>

#include "ptqwatch/quantizer.h"
#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch {
namespace quantize_test {

using testing::CorrelatedInputs;
using testing::ExpectNear;
using testing::Gram;
using ::testing::HasSubstr;
using testing::Identity;
using testing::Matrix;
using testing::RandomMatrix;
using testing::RunOk;
using testing::SpecOf;
using testing::TryQuantize;

QuantizerSpec Rtn() { return SpecOf(QuantizationMethod::kRtn); }

TEST(Quantize, GivesNoCodesWhenTheWeightIsNotFinite) {
  for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    Matrix weight = RandomMatrix(5, 40, 26);
    weight.at(3, 17) = bad;
    const GramStatistics statistics = Gram(CorrelatedInputs(100, 40, 27));
    for (QuantizationMethod method : testing::kAllMethods) {
      const QuantizedWeight got = RunOk(weight, &statistics, SpecOf(method));
      EXPECT_EQ(got.status, LayerStatus::kNonFinite);
      EXPECT_THAT(got.status_detail, HasSubstr("weight[3, 17]"));
      EXPECT_TRUE(got.codes.empty());
      EXPECT_TRUE(got.dequantized.empty());
      EXPECT_FALSE(got.loss.has_value());
    }
  }
}

TEST(Quantize, GivesNoCodesWhenHIsNotFinite) {
  for (double bad : {std::nan(""), -std::numeric_limits<double>::infinity()}) {
    GramStatistics statistics = Gram(CorrelatedInputs(100, 40, 28));
    statistics.sum[5 * 40 + 9] = bad;
    statistics.sum[9 * 40 + 5] = bad;
    for (QuantizationMethod method : testing::kAllMethods) {
      const QuantizedWeight got = RunOk(RandomMatrix(5, 40, 29), &statistics, SpecOf(method));
      EXPECT_EQ(got.status, LayerStatus::kNonFinite);
      EXPECT_THAT(got.status_detail, HasSubstr("row 5"));
      EXPECT_TRUE(got.codes.empty());
    }
  }
}

TEST(Quantize, SkippedInputRowsLeaveTheResultUntouched) {
  const Matrix weight = RandomMatrix(5, 40, 30);
  Matrix inputs = CorrelatedInputs(100, 40, 31);
  const GramStatistics clean = Gram(inputs);
  inputs.rows = 102;
  inputs.values.resize(102 * 40, std::nanf(""));
  const GramStatistics dirty = Gram(inputs);
  EXPECT_EQ(dirty.skipped_rows, 2);
  EXPECT_EQ(RunOk(weight, &dirty, QuantizerSpec{}).codes,
            RunOk(weight, &clean, QuantizerSpec{}).codes);
}

TEST(Quantize, RefusesWeightsTooLargeForAGrid) {
  Matrix weight = RandomMatrix(2, 8, 32);
  weight.at(1, 1) = 3e38f;
  const GramStatistics statistics = Gram(CorrelatedInputs(30, 8, 33));
  EXPECT_EQ(RunOk(weight, nullptr, Rtn()).status, LayerStatus::kUnsupported);
  EXPECT_EQ(RunOk(weight, &statistics, QuantizerSpec{}).status, LayerStatus::kUnsupported);
}

TEST(Quantize, CallsAnEmptyWeightUnsupported) {
  EXPECT_EQ(RunOk(Matrix(0, 5), nullptr, Rtn()).status, LayerStatus::kUnsupported);
  EXPECT_EQ(RunOk(Matrix(5, 0), nullptr, Rtn()).status, LayerStatus::kUnsupported);
  const GramStatistics none = Gram(Matrix(3, 0));
  EXPECT_EQ(RunOk(Matrix(5, 0), &none, QuantizerSpec{}).status, LayerStatus::kUnsupported);
}

TEST(Quantize, RtnNeedsNoStatistics) {
  const Matrix weight = RandomMatrix(6, 50, 34);
  const QuantizedWeight got = RunOk(weight, nullptr, Rtn());
  EXPECT_EQ(got.status, LayerStatus::kOk);
  EXPECT_EQ(got.scale.size(), 12u);
  EXPECT_FALSE(got.loss.has_value());
  EXPECT_FALSE(got.loss_damped.has_value());
  EXPECT_FALSE(got.rtn_loss.has_value());
  EXPECT_FALSE(got.output_energy.has_value());
  for (size_t i = 0; i < got.codes.size(); ++i) {
    // No further than half a step, and half a step past the end where the largest weight is cut.
    const float scale = got.scale[i / 50 * 2 + i % 50 / 32];
    EXPECT_LE(std::abs(weight.values[i] - got.dequantized[i]), 0.50001f * scale);
  }
}

TEST(Quantize, NamesWhatDoesNotFit) {
  const Matrix weight = RandomMatrix(4, 6, 35);
  absl::Status status = TryQuantize(weight, nullptr, QuantizerSpec{}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("statistics"));

  GramStatistics statistics = Gram(CorrelatedInputs(9, 5, 36));
  status = TryQuantize(weight, &statistics, QuantizerSpec{}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("statistics.inputs is 5"));

  statistics.inputs = 6;
  status = TryQuantize(weight, &statistics, QuantizerSpec{}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("statistics.sum has 25"));

  statistics.sum.resize(36);
  statistics.tokens = -1;
  status = TryQuantize(weight, &statistics, QuantizerSpec{}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("statistics.tokens is -1"));

  QuantizerSpec spec;
  spec.bits = 16;
  EXPECT_THAT(std::string(TryQuantize(weight, nullptr, spec).status().message()),
              HasSubstr("bits is 16"));

  ExecutionContext context;
  EXPECT_EQ(
      Quantize({.data = nullptr, .rows = 2, .cols = 2}, nullptr, Rtn(), context).status().code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      Quantize({.data = nullptr, .rows = -2, .cols = 2}, nullptr, Rtn(), context).status().code(),
      absl::StatusCode::kInvalidArgument);
}

TEST(Quantize, StopsWhenCancelled) {
  const Matrix weight = RandomMatrix(16, 64, 37);
  const GramStatistics statistics = Gram(CorrelatedInputs(100, 64, 38));
  ExecutionContext context;
  context.cancel.Cancel();
  for (QuantizationMethod method : testing::kAllMethods) {
    EXPECT_EQ(Quantize(weight.view(), &statistics, SpecOf(method), context).status().code(),
              absl::StatusCode::kCancelled);
  }
}

TEST(Quantize, StopsAtWhateverCheckpointItIsCancelled) {
  const Matrix weight = RandomMatrix(30, 140, 39);
  const GramStatistics statistics = Gram(CorrelatedInputs(200, 140, 40));
  for (QuantizationMethod method : testing::kAllMethods) {
    QuantizerSpec spec = SpecOf(method);
    spec.clip = ClipSearch::kMse;
    // The search has thousands of checkpoints: not all of them are tried.
    const int step =
        method == QuantizationMethod::kNf4 || method == QuantizationMethod::kLlmInt8 ? 1 : 37;
    int looks = 0;
    for (;; looks += step) {
      ExecutionContext context;
      testing::CancelAt clock(context.cancel, looks);
      context.pacer = Pacer(0.5, &clock);
      const absl::StatusOr<QuantizedWeight> got =
          Quantize(weight.view(), &statistics, spec, context);
      if (!clock.fired()) {
        EXPECT_TRUE(got.ok()) << got.status();
        break;
      }
      ASSERT_EQ(got.status().code(), absl::StatusCode::kCancelled) << "look " << looks;
      EXPECT_EQ(context.bytes->used(), 0);
    }
    EXPECT_GE(looks, 5);
  }
}

TEST(Quantize, StopsAtTheDeadline) {
  const Matrix weight = RandomMatrix(30, 140, 39);
  const GramStatistics statistics = Gram(CorrelatedInputs(200, 140, 40));
  ExecutionContext context;
  context.deadline = std::chrono::nanoseconds(1);
  for (QuantizationMethod method : testing::kAllMethods) {
    EXPECT_EQ(Quantize(weight.view(), &statistics, SpecOf(method), context).status().code(),
              absl::StatusCode::kDeadlineExceeded);
  }
}

TEST(Quantize, KeepsWithinTheByteBudget) {
  const Matrix weight = RandomMatrix(30, 140, 41);
  const GramStatistics statistics = Gram(CorrelatedInputs(200, 140, 42));
  for (QuantizationMethod method : testing::kAllMethods) {
    ExecutionContext context;
    context.bytes = std::make_shared<ByteBudget>(1000);
    EXPECT_EQ(Quantize(weight.view(), &statistics, SpecOf(method), context).status().code(),
              absl::StatusCode::kResourceExhausted);
    context.bytes = std::make_shared<ByteBudget>(int64_t{1} << 30);
    EXPECT_TRUE(Quantize(weight.view(), &statistics, SpecOf(method), context).ok());
    EXPECT_EQ(context.bytes->used(), 0);
  }
}

TEST(Quantize, HasNoCodesForAnEmptyWeight) {
  const GramStatistics none = Gram(Matrix(0, 0));
  for (QuantizationMethod method : testing::kAllMethods) {
    const QuantizedWeight got = RunOk(Matrix(3, 0), &none, SpecOf(method));
    EXPECT_EQ(got.status, LayerStatus::kUnsupported);
    EXPECT_THAT(got.status_detail, HasSubstr("[3, 0]"));
  }
}

TEST(Quantize, RefusesMagnitudesOfTheWrongSizeForEveryMethod) {
  const Matrix weight = RandomMatrix(4, 6, 43);
  for (QuantizationMethod method : testing::kAllMethods) {
    GramStatistics statistics = Gram(CorrelatedInputs(9, 6, 44));
    statistics.abs_sum.push_back(1);
    absl::Status status = TryQuantize(weight, &statistics, SpecOf(method)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("abs_sum has 7 numbers"));
    statistics.abs_sum.pop_back();
    statistics.abs_max.resize(2);
    status = TryQuantize(weight, &statistics, SpecOf(method)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("abs_max has 2 numbers"));
  }
}

TEST(Quantize, CountsDeadAndDuplicateColumns) {
  Matrix inputs = CorrelatedInputs(300, 90, 45);
  for (int64_t r = 0; r < inputs.rows; ++r) {
    for (int64_t c : {2, 50}) inputs.at(r, c) = 0;
    for (int64_t c : {7, 40, 88}) inputs.at(r, c) = inputs.at(r, 6);
    inputs.at(r, 11) = -inputs.at(r, 10);  // the same norm, but no duplicate
    inputs.at(r, 20) = inputs.at(r, 19);
  }
  const Matrix weight = RandomMatrix(3, 90, 46);
  const GramStatistics statistics = Gram(inputs);
  const GramStatistics none = Gram(Matrix(0, 90));
  for (QuantizationMethod method : testing::kAllMethods) {
    const QuantizedWeight got = RunOk(weight, &statistics, SpecOf(method));
    EXPECT_EQ(got.dead_columns, 2) << ToString(method);
    EXPECT_EQ(got.duplicate_columns, 4) << ToString(method);
    EXPECT_FALSE(RunOk(weight, &none, SpecOf(method)).dead_columns.has_value());
  }
  EXPECT_FALSE(RunOk(weight, nullptr, Rtn()).duplicate_columns.has_value());
}

// Float32 sums, more than one chunk of them and a second call must not hide a duplicate.
TEST(Quantize, CountsDuplicatesOfWideLayers) {
  Matrix inputs = CorrelatedInputs(700, 300, 47);
  for (int64_t r = 0; r < inputs.rows; ++r) {
    for (int64_t c = 0; c < 300; c += 3) inputs.at(r, c) = inputs.at(r, 299);
  }
  ExecutionContext context;
  GramAccumulator gram(300);
  ASSERT_TRUE(gram.Add(inputs.view(), context).ok());
  ASSERT_TRUE(
      gram.Add({.data = inputs.values.data() + 300, .rows = 333, .cols = 300}, context).ok());
  const GramStatistics statistics = gram.Take();
  const QuantizedWeight got = RunOk(RandomMatrix(2, 300, 48), &statistics, Rtn());
  EXPECT_EQ(got.duplicate_columns, 100);
  const GramStatistics identity = testing::WithHessian(Identity(300));
  EXPECT_EQ(RunOk(RandomMatrix(2, 300, 48), &identity, Rtn()).duplicate_columns, 0);
}

TEST(Quantize, SaysHowManyCalibrationRowsWereLeftOut) {
  Matrix inputs = CorrelatedInputs(100, 20, 49);
  inputs.at(4, 4) = std::nanf("");
  inputs.at(5, 4) = std::nanf("");
  const GramStatistics statistics = Gram(inputs);
  const Matrix weight = RandomMatrix(3, 20, 50);
  for (QuantizationMethod method : testing::kAllMethods) {
    const QuantizedWeight got = RunOk(weight, &statistics, SpecOf(method));
    EXPECT_EQ(got.status, LayerStatus::kOk);
    EXPECT_EQ(got.status_detail, "2 of 100 calibration rows were not finite and left out");
  }
  for (float& x : inputs.values) x = std::nanf("");
  const GramStatistics none = Gram(inputs);
  const QuantizedWeight got = RunOk(weight, &none, QuantizerSpec{});
  EXPECT_EQ(got.status, LayerStatus::kTooFewTokens);
  EXPECT_THAT(got.status_detail, HasSubstr("; 100 of 100 calibration rows"));
}

TEST(Quantize, UsesScalesOfTheDtypeAskedFor) {
  const Matrix weight = RandomMatrix(9, 100, 51);
  const GramStatistics statistics = Gram(CorrelatedInputs(200, 100, 52));
  for (QuantizationMethod method :
       {QuantizationMethod::kRtn, QuantizationMethod::kGptq, QuantizationMethod::kAwq}) {
    for (ClipSearch clip : {ClipSearch::kNone, ClipSearch::kMse}) {
      QuantizerSpec spec = SpecOf(method);
      spec.symmetric = false;
      spec.clip = clip;
      spec.scale_dtype = ScaleDtype::kBFloat16;
      const QuantizedWeight got = RunOk(weight, &statistics, spec);
      EXPECT_EQ(got.status, LayerStatus::kOk);
      for (size_t i = 0; i < got.scale.size(); ++i) {
        int exponent = 0;
        const float significand = std::frexp(got.scale[i], &exponent);
        EXPECT_EQ(256 * significand, std::round(256 * significand));
      }
      for (size_t i = 0; i < got.codes.size(); ++i) {
        const size_t g = i / 100 * 4 + i % 100 / 32;
        const float q = got.scale[g] * (static_cast<float>(got.codes[i]) - got.zero[g]);
        const bool awq = method == QuantizationMethod::kAwq;
        EXPECT_EQ(got.dequantized[i], awq ? q / got.channel_scale[i % 100] : q);
      }
      const double loss = testing::NaiveTrace(weight.values, got.dequantized, statistics);
      ExpectNear(got.loss, loss, 1e-6);
    }
  }
}

TEST(Quantize, IsUnsupportedWhenAScaleOverflowsItsDtype) {
  Matrix weight = RandomMatrix(3, 40, 53);
  weight.at(2, 39) = 1e12f;  // too large for every channel scale of AWQ
  const GramStatistics statistics = Gram(CorrelatedInputs(60, 40, 54));
  for (QuantizationMethod method : testing::kAllMethods) {
    QuantizerSpec spec = SpecOf(method);
    spec.scale_dtype = ScaleDtype::kFloat16;
    for (ClipSearch clip : {ClipSearch::kNone, ClipSearch::kMse}) {
      spec.clip = clip;
      const QuantizedWeight got = RunOk(weight, &statistics, spec);
      EXPECT_EQ(got.status, LayerStatus::kUnsupported) << ToString(method);
      EXPECT_THAT(got.status_detail, HasSubstr("f16"));
      EXPECT_TRUE(got.codes.empty());
      EXPECT_FALSE(got.loss.has_value());
      // The counts belong to the inputs and are known all the same.
      EXPECT_EQ(got.dead_columns, 0);
    }
  }
}

}  // namespace quantize_test
}  // namespace ptqwatch
