// Results on a device beside those of the engine.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cuda/device_quantizer.h"
#include "support/device_run.h"
#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch {
namespace device_agreement_test {

using internal::ComputeDevice;
using internal::DeviceGram;
using internal::RowType;
using testing::CorrelatedInputs;
using testing::DeviceRun;
using testing::ExpectAgrees;
using testing::GptqSpec;
using testing::Matrix;
using testing::RandomMatrix;
using testing::RunOk;

// On the device, all together, and by the engine: from the same weight and inputs.
void ExpectSame(ComputeDevice& device, const Matrix& weight, const Matrix* x,
                const std::vector<QuantizerSpec>& specs, RowType type = RowType::kFloat32) {
  DeviceRun run(device);
  const DeviceGram* gram = x == nullptr ? nullptr : run.Gram(*x, type);
  GramStatistics statistics;
  if (x != nullptr) statistics = testing::Gram(*x);
  std::vector<internal::DeviceLayer> layers;
  for (const QuantizerSpec& spec : specs) layers.push_back(run.Layer(weight, gram, spec));
  const std::vector<QuantizedWeight> got = run.Quantize(layers);
  for (size_t i = 0; i < specs.size(); ++i) {
    SCOPED_TRACE(Describe(specs[i]) + " " + std::to_string(weight.rows) + "x" +
                 std::to_string(weight.cols));
    ExpectAgrees(got[i], RunOk(weight, x == nullptr ? nullptr : &statistics, specs[i]));
  }
}

void ExpectSame(ComputeDevice& device, const Matrix& weight, const Matrix* x,
                const QuantizerSpec& spec, RowType type = RowType::kFloat32) {
  ExpectSame(device, weight, x, std::vector<QuantizerSpec>{spec}, type);
}

TEST(DeviceAgreement, GptqAgreesOnOddShapes) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  struct Shape {
    int64_t rows;
    int64_t cols;
  };
  for (const Shape& shape : {Shape{70, 150}, Shape{5, 1}, Shape{1, 300}, Shape{64, 128},
                             Shape{65, 129}, Shape{33, 270}}) {
    const Matrix weight = RandomMatrix(shape.rows, shape.cols, 5);
    const Matrix x = CorrelatedInputs(2 * shape.cols + 40, shape.cols, 6);
    std::vector<QuantizerSpec> specs;
    for (const QuantizationOrder order :
         {QuantizationOrder::kNone, QuantizationOrder::kStaticAct}) {
      specs.push_back(GptqSpec(4, 32, true, order));
      specs.push_back(GptqSpec(3, 128, false, order));
      specs.push_back(GptqSpec(2, -1, true, order));
      specs.push_back(GptqSpec(8, -1, false, order));
    }
    ExpectSame(*device, weight, &x, specs);
  }
}

TEST(DeviceAgreement, GptqAgreesWithRoundedScalesAndInputs) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  const Matrix weight = RandomMatrix(40, 140, 7);
  for (const RowType type : {RowType::kBFloat16, RowType::kFloat16}) {
    const Matrix x = testing::RoundedTo(type, CorrelatedInputs(300, 140, 8));
    for (const ScaleDtype dtype : {ScaleDtype::kFloat16, ScaleDtype::kBFloat16}) {
      QuantizerSpec spec =
          GptqSpec(4, 64, dtype == ScaleDtype::kFloat16, QuantizationOrder::kStaticAct);
      spec.scale_dtype = dtype;
      ExpectSame(*device, weight, &x, spec, type);
    }
  }
}

// More sums over the weight than it has inputs: each layer's are its own.
TEST(DeviceAgreement, ManyRowsOfFewInputsAgree) {
  const auto device = testing::MakeTestDevice(int64_t{128} << 20);
  if (device == nullptr) return;
  const Matrix weights[] = {RandomMatrix(8192, 128, 60), RandomMatrix(8192, 128, 61)};
  const Matrix inputs[] = {CorrelatedInputs(300, 128, 62), CorrelatedInputs(300, 128, 63)};
  for (const bool with_moments : {false, true}) {
    QuantizerSpec spec = GptqSpec(4, 128, true, QuantizationOrder::kStaticAct);
    spec.baselines = false;
    if (!with_moments) spec.method = QuantizationMethod::kRtn;
    for (const size_t count : {1, 2}) {
      SCOPED_TRACE(Describe(spec) + " " + std::to_string(count));
      DeviceRun run(*device);
      std::vector<internal::DeviceLayer> layers;
      for (size_t i = 0; i < count; ++i) {
        layers.push_back(run.Layer(weights[i], with_moments ? run.Gram(inputs[i]) : nullptr, spec));
      }
      internal::DeviceQuantizer quantizer(*device);
      ASSERT_TRUE(quantizer.Begin(layers).ok());
      const absl::StatusOr<std::vector<internal::DeviceResult>> results = quantizer.Collect();
      ASSERT_TRUE(results.ok()) << results.status();
      for (size_t i = 0; i < count; ++i) {
        const absl::StatusOr<QuantizedWeight> got = testing::CopyToHost(*device, (*results)[i]);
        ASSERT_TRUE(got.ok()) << got.status();
        const GramStatistics statistics = testing::Gram(inputs[i]);
        ExpectAgrees(*got, RunOk(weights[i], with_moments ? &statistics : nullptr, spec));
        double expected = 0;
        for (size_t k = 0; k < got->dequantized.size(); ++k) {
          expected += std::pow(static_cast<double>(weights[i].values[k] - got->dequantized[k]), 2);
        }
        EXPECT_NEAR((*results)[i].squared_error.value_or(-1), expected, 1e-9 * expected);
      }
    }
  }
}

TEST(DeviceAgreement, GptqAgreesOnAWideLayer) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  // Wide enough for float32 losses, and for a loss that comes from the loop.
  const Matrix weight = RandomMatrix(192, 352, 9);
  for (const RowType type : {RowType::kFloat32, RowType::kBFloat16}) {
    const Matrix x = testing::RoundedTo(type, CorrelatedInputs(700, 352, 10));
    ExpectSame(*device, weight, &x,
               {GptqSpec(3, 128, true, QuantizationOrder::kStaticAct),
                GptqSpec(4, 128, true, QuantizationOrder::kStaticAct)},
               type);
  }
}

TEST(DeviceAgreement, GptqLeavesOutBaselines) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  const Matrix weight = RandomMatrix(9, 40, 11);
  const Matrix x = CorrelatedInputs(90, 40, 12);
  QuantizerSpec spec = GptqSpec(4, 32, true, QuantizationOrder::kStaticAct);
  spec.baselines = false;
  ExpectSame(*device, weight, &x, spec);
}

TEST(DeviceAgreement, GptqFindsALossThatDampingHides) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  // So much damping that the loop's loss says nothing about the undamped one.
  const Matrix weight = RandomMatrix(300, 230, 13);
  const Matrix x = CorrelatedInputs(500, 230, 14);
  QuantizerSpec spec = GptqSpec(4, 128, true, QuantizationOrder::kNone);
  spec.damp = 30;
  ExpectSame(*device, weight, &x, spec);
}

TEST(DeviceAgreement, OtherMethodsAgree) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  const Matrix weight = RandomMatrix(37, 150, 15);
  Matrix x = CorrelatedInputs(200, 150, 16);
  x.at(3, 5) = 30;
  for (const QuantizationMethod method : testing::kAllMethods) {
    QuantizerSpec spec = testing::SpecOf(method);
    for (const ScaleDtype dtype :
         {ScaleDtype::kFloat32, ScaleDtype::kFloat16, ScaleDtype::kBFloat16}) {
      spec.scale_dtype = dtype;
      spec.symmetric = dtype != ScaleDtype::kFloat16;
      ExpectSame(*device, weight, &x, spec);
      if (method == QuantizationMethod::kRtn || method == QuantizationMethod::kNf4) {
        ExpectSame(*device, weight, nullptr, spec);
      }
    }
    if (method == QuantizationMethod::kLlmInt8) {
      spec.outlier_threshold = 0;
      ExpectSame(*device, weight, nullptr, spec);
      ExpectSame(*device, weight, &x, spec);
    }
  }
}

TEST(DeviceAgreement, EveryBitWidthAndNarrowRangesAgree) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  const Matrix weight = RandomMatrix(37, 150, 85);
  const Matrix x = CorrelatedInputs(200, 150, 86);
  for (const QuantizationMethod method :
       {QuantizationMethod::kRtn, QuantizationMethod::kGptq, QuantizationMethod::kAwq}) {
    std::vector<QuantizerSpec> specs;  // they go through the kernels together
    for (int bits = 2; bits <= 8; ++bits) {
      QuantizerSpec spec = testing::SpecOf(method);
      spec.bits = bits;
      specs.push_back(spec);
      spec.narrow_range = true;
      specs.push_back(spec);
      spec.min_scale = 0.2;
      specs.push_back(spec);
    }
    ExpectSame(*device, weight, &x, specs);
  }
}

TEST(DeviceAgreement, OtherMethodsAgreeOnAWideLayer) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  const Matrix weight = RandomMatrix(160, 330, 17);
  const Matrix x = CorrelatedInputs(400, 330, 18);
  ExpectSame(*device, weight, &x,
             {testing::SpecOf(QuantizationMethod::kRtn), testing::SpecOf(QuantizationMethod::kNf4),
              testing::SpecOf(QuantizationMethod::kLlmInt8)});
}

TEST(DeviceAgreement, ClippedGridsAgree) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  Matrix weight = RandomMatrix(21, 100, 19);
  for (int64_t r = 0; r < weight.rows; ++r) weight.at(r, r) *= 6;
  for (int64_t c = 0; c < 100; ++c) weight.at(4, c) = c == 7 ? 3e38f : 0.0f;
  Matrix x = CorrelatedInputs(150, 100, 20);
  for (int64_t r = 0; r < x.rows; ++r) x.at(r, 50) = 0;
  Matrix bad(12, 100);
  bad.values.assign(bad.values.size(), std::numeric_limits<float>::infinity());
  for (const QuantizationMethod method :
       {QuantizationMethod::kRtn, QuantizationMethod::kGptq, QuantizationMethod::kNf4}) {
    QuantizerSpec spec = testing::SpecOf(method);
    spec.clip = ClipSearch::kMse;
    for (const bool symmetric : {false, true}) {
      spec.symmetric = symmetric;
      spec.scale_dtype = ScaleDtype::kFloat32;
      ExpectSame(*device, weight, &x, spec);
      ExpectSame(*device, weight, &bad, spec);
      if (method == QuantizationMethod::kRtn) ExpectSame(*device, weight, nullptr, spec);
      spec.scale_dtype = ScaleDtype::kFloat16;  // where one group overflows
      ExpectSame(*device, weight, &x, spec);
    }
  }
}

std::vector<QuantizerSpec> EveryFormat(QuantizationMethod method) {
  std::vector<QuantizerSpec> specs;
  for (const QuantizationFormat format : testing::kFloatFormats) {
    QuantizerSpec spec = testing::SpecOf(format, method);
    specs.push_back(spec);
    if (format == QuantizationFormat::kMxfp4 || format == QuantizationFormat::kMxfp8) {
      for (const ScaleRule rule : {ScaleRule::kFloor, ScaleRule::kRoundUp}) {
        spec.scale_rule = rule;
        specs.push_back(spec);
      }
    } else if (format != QuantizationFormat::kNvfp4) {
      spec.scale_dtype = ScaleDtype::kFloat16;
      spec.group_size = -1;
      specs.push_back(spec);
      spec.scale_dtype = ScaleDtype::kBFloat16;
      spec.group_size = 48;
      specs.push_back(spec);
    }
  }
  return specs;
}

// Weights of all sizes, with groups of zeros, of one sign and of numbers below the smallest normal
// one.
Matrix MixedWeight(int64_t rows, int64_t cols, uint64_t seed) {
  Matrix weight = RandomMatrix(rows, cols, seed);
  for (int64_t c = 0; c < cols; ++c) {
    weight.at(1, c) *= c < 40 ? 0.0f : 1e-41f;
    weight.at(2, c) = std::abs(weight.at(2, c)) * std::ldexp(1.0f, static_cast<int>(c % 37) - 30);
    weight.at(3, c) *= 1e3f;
  }
  return weight;
}

TEST(DeviceAgreement, RoundingToFormatsHasTheEnginesBits) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  for (const int64_t cols : {1, 16, 31, 100, 150}) {
    const Matrix weight = MixedWeight(37, cols, 71);
    const std::vector<QuantizerSpec> specs = EveryFormat(QuantizationMethod::kRtn);
    DeviceRun run(*device);
    std::vector<internal::DeviceLayer> layers;
    for (const QuantizerSpec& spec : specs) layers.push_back(run.Layer(weight, nullptr, spec));
    const std::vector<QuantizedWeight> got = run.Quantize(layers);
    for (size_t i = 0; i < specs.size(); ++i) {
      SCOPED_TRACE(Describe(specs[i]) + " " + std::to_string(cols));
      const QuantizedWeight expected = RunOk(weight, nullptr, specs[i]);
      ExpectAgrees(got[i], expected);
      EXPECT_EQ(got[i].codes, expected.codes);
      EXPECT_EQ(got[i].dequantized, expected.dequantized);
    }
  }
}

TEST(DeviceAgreement, FormatsAgree) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  const Matrix weight = MixedWeight(37, 150, 72);
  Matrix x = CorrelatedInputs(300, 150, 73);
  for (int64_t r = 0; r < x.rows; ++r) x.at(r, 50) = 0;
  for (const QuantizationMethod method : {QuantizationMethod::kRtn, QuantizationMethod::kGptq}) {
    for (const ClipSearch clip : {ClipSearch::kNone, ClipSearch::kMse}) {
      std::vector<QuantizerSpec> specs = EveryFormat(method);
      // With integers they go through the kernels together.
      specs.push_back(testing::SpecOf(method));
      for (QuantizerSpec& spec : specs) spec.clip = clip;
      ExpectSame(*device, weight, &x, specs);
    }
  }
}

TEST(DeviceAgreement, ScalesOfSeveralRowsAgree) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  const Matrix weight = MixedWeight(37, 150, 78);
  const Matrix x = CorrelatedInputs(300, 150, 79);
  for (const QuantizationMethod method : {QuantizationMethod::kRtn, QuantizationMethod::kGptq}) {
    // With one of single rows they go through the kernels together.
    std::vector<QuantizerSpec> specs = {testing::SpecOf(method)};
    for (const int group_rows : {-1, 2, 32, 37, 100}) {
      for (const int group_size : {-1, 32}) {
        QuantizerSpec spec = testing::SpecOf(QuantizationFormat::kFp8, method);
        spec.group_rows = group_rows;
        spec.group_size = group_size;
        specs.push_back(spec);
        spec = testing::SpecOf(method);
        spec.group_rows = group_rows;
        spec.group_size = group_size;
        spec.symmetric = group_size < 0;
        specs.push_back(spec);
      }
    }
    ExpectSame(*device, weight, &x, specs);
  }
}

TEST(DeviceAgreement, RotatedWeightsAgree) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  for (const int64_t cols : {10, 150, 256}) {
    const Matrix weight = MixedWeight(37, cols, 80);
    Matrix x = CorrelatedInputs(2 * cols + 30, cols, 81);
    for (int64_t r = 0; r < x.rows; ++r) {
      x.at(r, 7) = 0;
      x.at(r, 9) = x.at(r, 3);
    }
    const Matrix few = CorrelatedInputs(1, cols, 82);
    for (const QuantizationMethod method : {QuantizationMethod::kRtn, QuantizationMethod::kGptq}) {
      std::vector<QuantizerSpec> specs;
      for (const int rotation : {16, 32, 64, 128}) {
        specs.push_back(testing::SpecOf(QuantizationFormat::kNvfp4, method));
        specs.back().rotation = rotation;
      }
      specs.push_back(testing::SpecOf(method));
      specs.push_back(testing::SpecOf(QuantizationFormat::kMxfp4, method));
      specs.back().clip = ClipSearch::kMse;
      for (size_t i = 4; i < specs.size(); ++i) specs[i].rotation = 32;
      ExpectSame(*device, weight, &x, specs);
      ExpectSame(*device, weight, &few, specs);
    }
  }
  // Wide enough for float32 losses, which may be repeated in float64.
  const Matrix weight = RandomMatrix(192, 352, 83);
  const Matrix x = CorrelatedInputs(700, 352, 84);
  QuantizerSpec spec = testing::SpecOf(QuantizationFormat::kNvfp4, QuantizationMethod::kGptq);
  spec.rotation = 128;
  ExpectSame(*device, weight, &x, spec);
}

// A number too large for its scale, a weight of zeros, one that is not finite, and too few tokens.
TEST(DeviceAgreement, FormatsAgreeOnBadNumbers) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  const Matrix x = CorrelatedInputs(90, 40, 75);
  const Matrix few = CorrelatedInputs(3, 40, 76);
  Matrix large = RandomMatrix(6, 40, 74);
  large.at(1, 2) = 1e38f;
  Matrix infinite = RandomMatrix(6, 40, 77);
  infinite.at(5, 39) = -std::numeric_limits<float>::infinity();
  const Matrix zeros(6, 40);
  const Matrix* const weights[] = {&large, &infinite, &zeros};
  for (const QuantizationMethod method : {QuantizationMethod::kRtn, QuantizationMethod::kGptq}) {
    const std::vector<QuantizerSpec> specs = EveryFormat(method);
    for (const Matrix* weight : weights) {
      ExpectSame(*device, *weight, &x, specs);
      ExpectSame(*device, *weight, &few, specs);
    }
  }
}

TEST(DeviceAgreement, AgreesOnDeadAndEqualInputs) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  Matrix weight = RandomMatrix(20, 70, 19);
  Matrix x = CorrelatedInputs(150, 70, 20);
  for (int64_t r = 0; r < x.rows; ++r) {
    for (const int64_t dead : {0, 33, 69}) x.at(r, dead) = 0;
    x.at(r, 40) = x.at(r, 12);
    x.at(r, 41) = x.at(r, 12);
  }
  // A group of zeros, and numbers of one sign.
  for (int64_t c = 0; c < 32; ++c) weight.at(3, c) = 0;
  for (int64_t c = 32; c < 70; ++c) weight.at(4, c) = std::abs(weight.at(4, c)) + 1;
  for (const QuantizationMethod method : testing::kAllMethods) {
    for (const bool symmetric : {false, true}) {
      QuantizerSpec spec = testing::SpecOf(method);
      spec.symmetric = symmetric;
      ExpectSame(*device, weight, &x, spec);
    }
  }
}

TEST(DeviceAgreement, AgreesWhenNumbersAreNotFinite) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  Matrix weight = RandomMatrix(6, 40, 21);
  Matrix x = CorrelatedInputs(90, 40, 22);
  x.at(4, 4) = std::numeric_limits<float>::quiet_NaN();
  for (const QuantizationMethod method : testing::kAllMethods) {
    ExpectSame(*device, weight, &x, testing::SpecOf(method));
  }
  weight.at(2, 7) = -std::numeric_limits<float>::infinity();
  weight.at(5, 0) = std::numeric_limits<float>::quiet_NaN();
  for (const QuantizationMethod method : testing::kAllMethods) {
    ExpectSame(*device, weight, &x, testing::SpecOf(method));
  }
  // Squares that overflow float32.
  const Matrix small = RandomMatrix(3, 300, 23);
  Matrix large(10, 300);
  large.at(1, 200) = 1e30f;
  for (const QuantizationMethod method : testing::kAllMethods) {
    ExpectSame(*device, small, &large, testing::SpecOf(method));
  }
}

TEST(DeviceAgreement, AgreesWhenAWeightOverflowsItsScale) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  Matrix weight = RandomMatrix(6, 40, 24);
  weight.at(1, 2) = 3e38f;
  const Matrix x = CorrelatedInputs(90, 40, 25);
  for (const QuantizationMethod method : testing::kAllMethods) {
    QuantizerSpec spec = testing::SpecOf(method);
    spec.scale_dtype = ScaleDtype::kFloat16;
    ExpectSame(*device, weight, &x, spec);
  }
}

TEST(DeviceAgreement, AgreesWithTooFewTokens) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  const Matrix weight = RandomMatrix(6, 80, 26);
  Matrix x = CorrelatedInputs(10, 80, 27);
  Matrix none(0, 80);
  Matrix bad(12, 80);
  bad.values.assign(bad.values.size(), std::numeric_limits<float>::infinity());
  // Ten rows are just enough, of which one is not finite. Then none are, which is known only later.
  for (const QuantizationMethod method : testing::kAllMethods) {
    const QuantizerSpec spec = testing::SpecOf(method);
    ExpectSame(*device, weight, &x, spec);
    ExpectSame(*device, weight, &none, spec);
    ExpectSame(*device, weight, &bad, spec);
  }
  x.at(5, 5) = std::numeric_limits<float>::quiet_NaN();
  QuantizerSpec spec = testing::SpecOf(QuantizationMethod::kGptq);
  ExpectSame(*device, weight, &x, spec);
  // So few that it is known before.
  spec.min_tokens_ratio = 1;
  ExpectSame(*device, weight, &x, spec);
  ExpectSame(*device, weight, &bad, spec);
}

TEST(DeviceAgreement, DampsMoreIfHHasNoFactor) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  const Matrix weight = RandomMatrix(6, 3, 28);
  // H is 4 everywhere, so that its second pivot is exactly 0.
  Matrix x(2, 3);
  x.values = {2, 2, 2, 0, 0, 0};
  QuantizerSpec spec = GptqSpec(4, -1, true, QuantizationOrder::kStaticAct);
  spec.damp = 0;
  ExpectSame(*device, weight, &x, spec);
}

}  // namespace device_agreement_test
}  // namespace ptqwatch
