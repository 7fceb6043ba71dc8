#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ptqwatch/quantizer.h"
#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch {
namespace {

using testing::CorrelatedInputs;
using ::testing::Each;
using testing::Gram;
using ::testing::HasSubstr;
using testing::Matrix;
using testing::RandomMatrix;
using testing::RunOk;
using testing::SpecOf;
using testing::TryQuantize;

QuantizerSpec Spec(int bits, int group_size, bool symmetric, QuantizationOrder order) {
  QuantizerSpec spec;
  spec.bits = bits;
  spec.group_size = group_size;
  spec.symmetric = symmetric;
  spec.order = order;
  spec.min_tokens_ratio = 0;
  return spec;
}

QuantizerSpec Rtn() { return SpecOf(QuantizationMethod::kRtn); }

std::vector<double> Identity(int64_t d) {
  std::vector<double> h(static_cast<size_t>(d * d), 0.0);
  for (int64_t i = 0; i < d; ++i) h[static_cast<size_t>(i * d + i)] = 1;
  return h;
}

void ExpectNear(std::optional<double> got, double expected, double tolerance) {
  ASSERT_TRUE(got.has_value());
  EXPECT_NEAR(*got, expected, tolerance * std::abs(expected));
}

size_t CountDifferent(const QuantizedWeight& got, const testing::ReferenceResult& expected) {
  size_t differ = 0;
  for (size_t i = 0; i < got.codes.size(); ++i) {
    if (static_cast<int>(got.codes[i]) != expected.codes[i]) {
      ++differ;
    } else {
      EXPECT_EQ(got.dequantized[i], expected.dequantized[i]) << i;
    }
  }
  return differ;
}

// The same algorithm as the float64 definition applied to `exact`: fewer than 0.3 % of the codes
// and less than 1e-3 of the losses differ.
void ExpectAgrees(const Matrix& weight, const GramStatistics& statistics,
                  const GramStatistics& exact, const QuantizerSpec& spec) {
  SCOPED_TRACE(Describe(spec) + " " + std::to_string(weight.rows) + "x" +
               std::to_string(weight.cols));
  const testing::ReferenceResult expected = testing::ReferenceGptq(weight, exact, spec);
  const QuantizedWeight got = RunOk(weight, &statistics, spec);
  EXPECT_EQ(got.status, LayerStatus::kOk) << got.status_detail;
  EXPECT_EQ(got.scale, expected.scale);
  EXPECT_EQ(got.zero, expected.zero);
  EXPECT_EQ(got.order, expected.order);
  EXPECT_EQ(got.damp, spec.damp);
  EXPECT_NEAR(got.damp_value, expected.damp_value, 1e-5 * expected.damp_value);
  ASSERT_EQ(got.codes.size(), expected.codes.size());
  ASSERT_EQ(got.dequantized.size(), expected.codes.size());
  const size_t differ = CountDifferent(got, expected);
  EXPECT_LE(static_cast<double>(differ), 0.003 * static_cast<double>(got.codes.size()));
  ExpectNear(got.loss, expected.loss, 1e-3);
  ExpectNear(got.loss_damped, expected.loss_damped, 1e-3);
  ExpectNear(got.rtn_loss, expected.rtn_loss, 1e-4);
  ExpectNear(got.output_energy, expected.output_energy, 1e-4);
}

// With the float32 Gram included.
void ExpectAgrees(const Matrix& weight, const Matrix& inputs, const QuantizerSpec& spec) {
  ExpectAgrees(weight, Gram(inputs), testing::NaiveGram(inputs), spec);
}

struct Shape {
  int64_t rows, cols, tokens;
  int group;
};

struct Problem {
  Matrix weight;
  Matrix inputs;
  int group;
};

std::vector<Problem> ManyShapes() {
  std::vector<Problem> problems;
  uint64_t seed = 1;
  for (const Shape& shape : {Shape{1, 1, 5, -1}, Shape{20, 1, 9, 128}, Shape{1, 70, 140, 32},
                             Shape{3, 4, 30, 3}, Shape{25, 127, 260, 32}, Shape{24, 128, 260, 128},
                             Shape{23, 129, 300, 50}, Shape{49, 150, 90, -1}}) {
    Matrix weight = RandomMatrix(shape.rows, shape.cols, ++seed);
    Matrix inputs = CorrelatedInputs(shape.tokens, shape.cols, ++seed);
    problems.push_back({std::move(weight), std::move(inputs), shape.group});
  }
  return problems;
}

std::vector<QuantizerSpec> ManySpecs(int group) {
  std::vector<QuantizerSpec> specs;
  for (int bits : {2, 3, 4, 8}) {
    for (bool symmetric : {true, false}) {
      for (QuantizationOrder order : {QuantizationOrder::kNone, QuantizationOrder::kStaticAct}) {
        specs.push_back(Spec(bits, group, symmetric, order));
      }
    }
  }
  return specs;
}

// Factor and loop alone: both sides get the same second moments.
TEST(Gptq, AgreesWithTheDefinitionOnManyShapes) {
  for (const Problem& problem : ManyShapes()) {
    const GramStatistics exact = testing::NaiveGram(problem.inputs);
    for (const QuantizerSpec& spec : ManySpecs(problem.group)) {
      ExpectAgrees(problem.weight, exact, exact, spec);
    }
  }
}

// With the float32 Gram a weight that lies on a rounding tie may fall the other way, and the rest
// of its row with it: of a small matrix that is more than 0.3 %, so the share is taken over all of
// them.
TEST(Gptq, AgreesWithTheDefinitionFromInputsToCodes) {
  size_t codes = 0;
  size_t differ = 0;
  for (const Problem& problem : ManyShapes()) {
    const GramStatistics exact = testing::NaiveGram(problem.inputs);
    const GramStatistics statistics = Gram(problem.inputs);
    for (const QuantizerSpec& spec : ManySpecs(problem.group)) {
      const QuantizedWeight got = RunOk(problem.weight, &statistics, spec);
      ASSERT_EQ(got.codes.size(), problem.weight.values.size());
      codes += got.codes.size();
      differ += CountDifferent(got, testing::ReferenceGptq(problem.weight, exact, spec));
    }
  }
  EXPECT_LT(static_cast<double>(differ), 0.0003 * static_cast<double>(codes));
}

// Enough rows and columns for several row groups, column blocks and the loss that comes out of the
// loop.
TEST(Gptq, AgreesWithTheDefinitionOnALargerMatrix) {
  ExpectAgrees(RandomMatrix(430, 290, 1), CorrelatedInputs(600, 290, 2),
               Spec(4, 128, true, QuantizationOrder::kStaticAct));
}

TEST(Gptq, AgreesWithTheDefinitionOnEveryTarget) {
  const Matrix weight = RandomMatrix(100, 140, 3);
  const Matrix inputs = CorrelatedInputs(300, 140, 4);
  for (int64_t target : testing::UsableTargets()) {
    const testing::OnlyTarget only(target);
    ExpectAgrees(weight, inputs, Spec(3, 32, false, QuantizationOrder::kStaticAct));
  }
}

TEST(Gptq, AgreesWhenDampingIsNearlyAllOfTheLoss) {
  Matrix inputs = CorrelatedInputs(400, 96, 5);
  for (int64_t r = 0; r < inputs.rows; ++r) inputs.at(r, 40) *= 1e4f;
  ExpectAgrees(RandomMatrix(32, 96, 6), inputs, Spec(4, 32, true, QuantizationOrder::kStaticAct));
  // The same with enough weights for the loop's own loss to be considered.
  Matrix more = CorrelatedInputs(400, 220, 7);
  for (int64_t r = 0; r < more.rows; ++r) more.at(r, 40) *= 1e4f;
  ExpectAgrees(RandomMatrix(300, 220, 8), more, Spec(4, 128, true, QuantizationOrder::kStaticAct));
}

TEST(Gptq, AgreesWithDuplicateColumns) {
  Matrix inputs = CorrelatedInputs(200, 64, 9);
  for (int64_t r = 0; r < inputs.rows; ++r) {
    for (int64_t c = 0; c < 64; c += 2) inputs.at(r, c + 1) = inputs.at(r, c);
  }
  ExpectAgrees(RandomMatrix(20, 64, 10), inputs, Spec(4, 32, false, QuantizationOrder::kNone));
}

TEST(Gptq, DecodesDeadColumnsToZero) {
  Matrix inputs = CorrelatedInputs(200, 64, 11);
  for (int64_t r = 0; r < inputs.rows; ++r) {
    for (int64_t c : {0, 7, 8, 63}) inputs.at(r, c) = 0;
  }
  Matrix weight = RandomMatrix(20, 64, 12);
  for (int64_t r = 0; r < weight.rows; ++r) weight.at(r, 7) = 100;  // must not widen the grid
  for (bool symmetric : {true, false}) {
    const QuantizerSpec spec = Spec(4, 32, symmetric, QuantizationOrder::kStaticAct);
    ExpectAgrees(weight, inputs, spec);
    const GramStatistics statistics = Gram(inputs);
    const QuantizedWeight got = RunOk(weight, &statistics, spec);
    for (int64_t r = 0; r < weight.rows; ++r) {
      for (int64_t c : {0, 7, 8, 63}) {
        EXPECT_EQ(got.dequantized[static_cast<size_t>(r * 64 + c)], 0.0f);
      }
    }
    // Dead columns come last, the lower index first.
    const std::vector<int64_t> last(got.order.end() - 4, got.order.end());
    EXPECT_EQ(last, (std::vector<int64_t>{0, 7, 8, 63}));
  }
}

TEST(Gptq, HandlesInputsThatAreAllZero) {
  const GramStatistics statistics = Gram(Matrix(50, 10));
  const QuantizedWeight got = RunOk(RandomMatrix(3, 10, 13), &statistics, QuantizerSpec{});
  EXPECT_EQ(got.status, LayerStatus::kOk);
  EXPECT_THAT(got.dequantized, Each(0.0f));
  EXPECT_EQ(got.loss, 0.0);
  EXPECT_EQ(got.rtn_loss, 0.0);
  EXPECT_EQ(got.output_energy, 0.0);
}

TEST(Gptq, EqualsRtnWhenHIsTheIdentity) {
  for (int bits : {2, 3, 4, 8}) {
    const Matrix weight = RandomMatrix(40, 200, 14);
    const GramStatistics statistics = testing::WithHessian(Identity(200));
    QuantizerSpec spec = Spec(bits, 32, true, QuantizationOrder::kStaticAct);
    const QuantizedWeight gptq = RunOk(weight, &statistics, spec);
    spec.method = QuantizationMethod::kRtn;
    const QuantizedWeight rtn = RunOk(weight, &statistics, spec);
    EXPECT_EQ(gptq.codes, rtn.codes);
    EXPECT_EQ(gptq.dequantized, rtn.dequantized);
    ExpectNear(gptq.loss, *gptq.rtn_loss, 1e-9);
    ExpectNear(rtn.loss, *gptq.rtn_loss, 1e-9);
  }
}

TEST(Gptq, LosesLessThanRtnOnCorrelatedInputs) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const Matrix weight = RandomMatrix(16, 160, seed);
    const GramStatistics statistics = Gram(CorrelatedInputs(500, 160, seed + 100));
    for (int bits : {3, 4, 8}) {
      const QuantizedWeight got =
          RunOk(weight, &statistics, Spec(bits, 32, true, QuantizationOrder::kStaticAct));
      EXPECT_LT(*got.loss, 0.8 * *got.rtn_loss) << bits;
      EXPECT_LT(*got.rtn_loss, *got.output_energy);
      EXPECT_GE(*got.loss_damped, *got.loss);
    }
  }
}

// Both losses are reported, the smaller one is not picked: on correlated layers of 16 rows or more
// GPTQ's has to be the smaller one by itself.
TEST(Gptq, IsNeverAboveRtnOnCorrelatedLayers) {
  uint64_t seed = 0;
  for (const Shape& shape : {Shape{16, 24, 200, 8}, Shape{16, 200, 60, 128}, Shape{40, 64, 300, -1},
                             Shape{100, 130, 700, 32}}) {
    for (int trial = 0; trial < 3; ++trial) {
      const Matrix weight = RandomMatrix(shape.rows, shape.cols, ++seed);
      const GramStatistics statistics =
          Gram(CorrelatedInputs(shape.tokens, shape.cols, seed + 1000));
      for (QuantizerSpec spec : ManySpecs(shape.group)) {
        for (ClipSearch clip : {ClipSearch::kNone, ClipSearch::kMse}) {
          spec.clip = clip;
          const QuantizedWeight got = RunOk(weight, &statistics, spec);
          EXPECT_LE(*got.loss, *got.rtn_loss)
              << Describe(spec) << " " << shape.rows << "x" << shape.cols << " seed " << seed;
        }
      }
    }
  }
}

TEST(Gptq, RepeatsBitForBit) {
  const Matrix weight = RandomMatrix(70, 300, 15);
  const GramStatistics statistics = Gram(CorrelatedInputs(500, 300, 16));
  const QuantizedWeight a = RunOk(weight, &statistics, QuantizerSpec{});
  const QuantizedWeight b = RunOk(weight, &statistics, QuantizerSpec{});
  EXPECT_EQ(a.codes, b.codes);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.loss_damped, b.loss_damped);
  EXPECT_EQ(a.rtn_loss, b.rtn_loss);
  EXPECT_EQ(a.output_energy, b.output_energy);
}

// A row's codes do not depend on the rows beside it.
TEST(Gptq, QuantizesEachRowByItself) {
  const Matrix weight = RandomMatrix(60, 130, 17);
  const GramStatistics statistics = Gram(CorrelatedInputs(300, 130, 18));
  const QuantizedWeight all = RunOk(weight, &statistics, QuantizerSpec{});
  for (int64_t r : {0, 23, 24, 59}) {
    Matrix one(1, 130);
    std::copy_n(weight.values.begin() + r * 130, 130, one.values.begin());
    const QuantizedWeight alone = RunOk(one, &statistics, QuantizerSpec{});
    EXPECT_TRUE(std::equal(alone.codes.begin(), alone.codes.end(), all.codes.begin() + r * 130));
  }
}

TEST(Gptq, RaisesDampingWhenHIsNotPositiveDefinite) {
  // Eigenvalues 1 +- 1.05: the diagonal must grow by more than 0.05.
  const GramStatistics statistics = testing::WithHessian({1, 1.05, 1.05, 1});
  const QuantizedWeight got = RunOk(RandomMatrix(4, 2, 19), &statistics, QuantizerSpec{});
  EXPECT_EQ(got.status, LayerStatus::kDamped);
  EXPECT_DOUBLE_EQ(got.damp, 0.1);
  EXPECT_DOUBLE_EQ(got.damp_value, 0.1);
  EXPECT_THAT(got.status_detail, HasSubstr("0.1 instead of 0.01"));
  EXPECT_EQ(got.codes.size(), 8u);
}

TEST(Gptq, ClimbsFromNoDampingAtAll) {
  const GramStatistics statistics = testing::WithHessian({1, 1, 1, 1});
  QuantizerSpec spec;
  spec.damp = 0;
  const QuantizedWeight got = RunOk(RandomMatrix(4, 2, 20), &statistics, spec);
  EXPECT_EQ(got.status, LayerStatus::kDamped);
  EXPECT_DOUBLE_EQ(got.damp, 1e-4);
}

TEST(Gptq, FallsBackToRtnWhenNoDampingHelps) {
  const GramStatistics statistics = testing::WithHessian({1, 5, 5, 1});
  const Matrix weight = RandomMatrix(4, 2, 21);
  const QuantizedWeight got = RunOk(weight, &statistics, QuantizerSpec{});
  EXPECT_EQ(got.status, LayerStatus::kRtnFallback);
  EXPECT_FALSE(got.status_detail.empty());
  EXPECT_EQ(got.damp, 0);
  EXPECT_TRUE(got.order.empty());
  EXPECT_FALSE(got.loss_damped.has_value());
  QuantizerSpec rtn;
  rtn.method = QuantizationMethod::kRtn;
  EXPECT_EQ(got.codes, RunOk(weight, nullptr, rtn).codes);
}

TEST(Gptq, UsesRtnWhenTokensAreTooFew) {
  const Matrix weight = RandomMatrix(8, 80, 22);
  QuantizerSpec rtn;
  rtn.method = QuantizationMethod::kRtn;
  const QuantizedWeight expected = RunOk(weight, nullptr, rtn);
  for (int64_t tokens : {0, 1, 9}) {
    const GramStatistics few = Gram(CorrelatedInputs(tokens, 80, 23));
    const QuantizedWeight got = RunOk(weight, &few, QuantizerSpec{});
    EXPECT_EQ(got.status, LayerStatus::kTooFewTokens) << tokens;
    EXPECT_THAT(got.status_detail, HasSubstr("80 inputs"));
    EXPECT_EQ(got.codes, expected.codes);
    EXPECT_EQ(got.loss.has_value(), tokens > 0);
    EXPECT_EQ(got.loss, got.rtn_loss);
  }
  const GramStatistics enough = Gram(CorrelatedInputs(10, 80, 23));
  EXPECT_EQ(RunOk(weight, &enough, QuantizerSpec{}).status, LayerStatus::kOk);
}

TEST(Gptq, TakesOneTokenButNeverNone) {
  QuantizerSpec spec;
  spec.min_tokens_ratio = 0;
  const Matrix weight = RandomMatrix(8, 20, 24);
  ExpectAgrees(weight, CorrelatedInputs(1, 20, 25),
               Spec(4, 128, true, QuantizationOrder::kStaticAct));
  const GramStatistics none = Gram(Matrix(0, 20));
  EXPECT_EQ(RunOk(weight, &none, spec).status, LayerStatus::kTooFewTokens);
}

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
      Quantize(context, {.data = nullptr, .rows = 2, .cols = 2}, nullptr, Rtn()).status().code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      Quantize(context, {.data = nullptr, .rows = -2, .cols = 2}, nullptr, Rtn()).status().code(),
      absl::StatusCode::kInvalidArgument);
}

TEST(Quantize, StopsWhenCancelled) {
  const Matrix weight = RandomMatrix(16, 64, 37);
  const GramStatistics statistics = Gram(CorrelatedInputs(100, 64, 38));
  ExecutionContext context;
  context.cancel.Cancel();
  for (QuantizationMethod method : testing::kAllMethods) {
    EXPECT_EQ(Quantize(context, weight.view(), &statistics, SpecOf(method)).status().code(),
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
          Quantize(context, weight.view(), &statistics, spec);
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
    EXPECT_EQ(Quantize(context, weight.view(), &statistics, SpecOf(method)).status().code(),
              absl::StatusCode::kDeadlineExceeded);
  }
}

TEST(Quantize, KeepsWithinTheByteBudget) {
  const Matrix weight = RandomMatrix(30, 140, 41);
  const GramStatistics statistics = Gram(CorrelatedInputs(200, 140, 42));
  for (QuantizationMethod method : testing::kAllMethods) {
    ExecutionContext context;
    context.bytes = std::make_shared<ByteBudget>(1000);
    EXPECT_EQ(Quantize(context, weight.view(), &statistics, SpecOf(method)).status().code(),
              absl::StatusCode::kResourceExhausted);
    context.bytes = std::make_shared<ByteBudget>(int64_t{1} << 30);
    EXPECT_TRUE(Quantize(context, weight.view(), &statistics, SpecOf(method)).ok());
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
  ASSERT_TRUE(gram.Add(context, inputs.view()).ok());
  ASSERT_TRUE(
      gram.Add(context, {.data = inputs.values.data() + 300, .rows = 333, .cols = 300}).ok());
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

}  // namespace
}  // namespace ptqwatch
