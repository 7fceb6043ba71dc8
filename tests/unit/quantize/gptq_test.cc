#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "ptqwatch/quantizer.h"
#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch {
namespace gptq_test {

using testing::CorrelatedInputs;
using ::testing::Each;
using testing::ExpectNear;
using testing::GptqSpec;
using testing::Gram;
using ::testing::HasSubstr;
using testing::Identity;
using testing::Matrix;
using testing::RandomMatrix;
using testing::RunOk;

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
  for (int bits = 2; bits <= 8; ++bits) {
    for (bool symmetric : {true, false}) {
      for (QuantizationOrder order : {QuantizationOrder::kNone, QuantizationOrder::kStaticAct}) {
        specs.push_back(GptqSpec(bits, group, symmetric, order));
      }
    }
    QuantizerSpec narrow = GptqSpec(bits, group, true, QuantizationOrder::kStaticAct);
    narrow.narrow_range = true;
    specs.push_back(narrow);
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

TEST(Gptq, AgreesWithTheDefinitionOnRangesByRule) {
  for (const Problem& problem : ManyShapes()) {
    const GramStatistics exact = testing::NaiveGram(problem.inputs);
    for (const bool narrow : {false, true}) {
      for (const auto& [clip, value] : {std::pair{ClipSearch::kPercentile, 100.0},
                                        {ClipSearch::kPercentile, 99.0},
                                        {ClipSearch::kPercentile, 60.0},
                                        {ClipSearch::kStd, 2.5},
                                        {ClipSearch::kStd, 12.85}}) {
        QuantizerSpec spec = GptqSpec(6, problem.group, true, QuantizationOrder::kStaticAct);
        spec.narrow_range = narrow;
        spec.clip = clip;
        spec.clip_value = value;
        ExpectAgrees(problem.weight, exact, exact, spec);
      }
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
               GptqSpec(4, 128, true, QuantizationOrder::kStaticAct));
}

TEST(Gptq, AgreesWithTheDefinitionOnEveryTarget) {
  const Matrix weight = RandomMatrix(100, 140, 3);
  const Matrix inputs = CorrelatedInputs(300, 140, 4);
  for (int64_t target : testing::UsableTargets()) {
    const testing::OnlyTarget only(target);
    ExpectAgrees(weight, inputs, GptqSpec(3, 32, false, QuantizationOrder::kStaticAct));
  }
}

TEST(Gptq, AgreesWhenDampingIsNearlyAllOfTheLoss) {
  Matrix inputs = CorrelatedInputs(400, 96, 5);
  for (int64_t r = 0; r < inputs.rows; ++r) inputs.at(r, 40) *= 1e4f;
  ExpectAgrees(RandomMatrix(32, 96, 6), inputs,
               GptqSpec(4, 32, true, QuantizationOrder::kStaticAct));
  // The same with enough weights for the loop's own loss to be considered.
  Matrix more = CorrelatedInputs(400, 220, 7);
  for (int64_t r = 0; r < more.rows; ++r) more.at(r, 40) *= 1e4f;
  ExpectAgrees(RandomMatrix(300, 220, 8), more,
               GptqSpec(4, 128, true, QuantizationOrder::kStaticAct));
}

TEST(Gptq, AgreesWithDuplicateColumns) {
  Matrix inputs = CorrelatedInputs(200, 64, 9);
  for (int64_t r = 0; r < inputs.rows; ++r) {
    for (int64_t c = 0; c < 64; c += 2) inputs.at(r, c + 1) = inputs.at(r, c);
  }
  ExpectAgrees(RandomMatrix(20, 64, 10), inputs, GptqSpec(4, 32, false, QuantizationOrder::kNone));
}

TEST(Gptq, DecodesDeadColumnsToZero) {
  Matrix inputs = CorrelatedInputs(200, 64, 11);
  for (int64_t r = 0; r < inputs.rows; ++r) {
    for (int64_t c : {0, 7, 8, 63}) inputs.at(r, c) = 0;
  }
  Matrix weight = RandomMatrix(20, 64, 12);
  for (int64_t r = 0; r < weight.rows; ++r) weight.at(r, 7) = 100;  // must not widen the grid
  for (bool symmetric : {true, false}) {
    const QuantizerSpec spec = GptqSpec(4, 32, symmetric, QuantizationOrder::kStaticAct);
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
    QuantizerSpec spec = GptqSpec(bits, 32, true, QuantizationOrder::kStaticAct);
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
          RunOk(weight, &statistics, GptqSpec(bits, 32, true, QuantizationOrder::kStaticAct));
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

TEST(Gptq, NeedsAtLeastOneToken) {
  QuantizerSpec spec;
  spec.min_tokens_ratio = 0;
  const Matrix weight = RandomMatrix(8, 20, 24);
  ExpectAgrees(weight, CorrelatedInputs(1, 20, 25),
               GptqSpec(4, 128, true, QuantizationOrder::kStaticAct));
  const GramStatistics none = Gram(Matrix(0, 20));
  EXPECT_EQ(RunOk(weight, &none, spec).status, LayerStatus::kTooFewTokens);
}

}  // namespace gptq_test
}  // namespace ptqwatch
