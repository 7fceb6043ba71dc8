#include "cuda/device_quantizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/device_run.h"
#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch {
namespace {

using internal::ComputeDevice;
using internal::DeviceGram;
using internal::DeviceLayer;
using internal::DeviceQuantizer;
using internal::DeviceResult;
using internal::RowType;
using testing::CorrelatedInputs;
using testing::DeviceRun;
using testing::ExpectAgrees;
using testing::ExpectIdentical;
using ::testing::HasSubstr;
using testing::Matrix;
using testing::RandomMatrix;
using testing::RunOk;

QuantizerSpec Gptq(int bits, int group_size, bool symmetric, QuantizationOrder order) {
  QuantizerSpec spec;
  spec.bits = bits;
  spec.group_size = group_size;
  spec.symmetric = symmetric;
  spec.order = order;
  spec.min_tokens_ratio = 0;
  return spec;
}

// On the device and by the engine, from the same weight and inputs.
void ExpectSame(ComputeDevice& device, const Matrix& weight, const Matrix* x,
                const QuantizerSpec& spec, RowType type = RowType::kFloat32,
                testing::Tolerance tolerance = {}) {
  SCOPED_TRACE(Describe(spec) + " " + std::to_string(weight.rows) + "x" +
               std::to_string(weight.cols));
  DeviceRun run(device);
  const DeviceGram* gram = x == nullptr ? nullptr : run.Gram(*x, type);
  GramStatistics statistics;
  if (x != nullptr) statistics = testing::Gram(*x);
  const QuantizedWeight expected = RunOk(weight, x == nullptr ? nullptr : &statistics, spec);
  ExpectAgrees(run.Quantize({run.Layer(weight, gram, spec)})[0], expected, tolerance);
}

TEST(DeviceQuantizer, GptqAgreesOnOddShapes) {
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
    for (const QuantizationOrder order :
         {QuantizationOrder::kNone, QuantizationOrder::kStaticAct}) {
      ExpectSame(*device, weight, &x, Gptq(4, 32, true, order));
      ExpectSame(*device, weight, &x, Gptq(3, 128, false, order));
      ExpectSame(*device, weight, &x, Gptq(2, -1, true, order));
      ExpectSame(*device, weight, &x, Gptq(8, -1, false, order));
    }
  }
}

TEST(DeviceQuantizer, GptqAgreesWithRoundedScalesAndInputs) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  const Matrix weight = RandomMatrix(40, 140, 7);
  for (const RowType type : {RowType::kBFloat16, RowType::kFloat16}) {
    const Matrix x = testing::RoundedTo(type, CorrelatedInputs(300, 140, 8));
    for (const ScaleDtype dtype : {ScaleDtype::kFloat16, ScaleDtype::kBFloat16}) {
      QuantizerSpec spec =
          Gptq(4, 64, dtype == ScaleDtype::kFloat16, QuantizationOrder::kStaticAct);
      spec.scale_dtype = dtype;
      ExpectSame(*device, weight, &x, spec, type);
    }
  }
}

TEST(DeviceQuantizer, GptqAgreesOnAWideLayer) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  // Wide enough for float32 losses, and for a loss that comes from the loop.
  const Matrix weight = RandomMatrix(192, 352, 9);
  for (const RowType type : {RowType::kFloat32, RowType::kBFloat16}) {
    const Matrix x = testing::RoundedTo(type, CorrelatedInputs(700, 352, 10));
    for (const int bits : {3, 4}) {
      ExpectSame(*device, weight, &x, Gptq(bits, 128, true, QuantizationOrder::kStaticAct), type);
    }
  }
}

TEST(DeviceQuantizer, GptqLeavesOutBaselines) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  const Matrix weight = RandomMatrix(9, 40, 11);
  const Matrix x = CorrelatedInputs(90, 40, 12);
  QuantizerSpec spec = Gptq(4, 32, true, QuantizationOrder::kStaticAct);
  spec.baselines = false;
  ExpectSame(*device, weight, &x, spec);
}

TEST(DeviceQuantizer, GptqFindsALossThatDampingHides) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  // So much damping that the loop's loss says nothing about the undamped one.
  const Matrix weight = RandomMatrix(300, 230, 13);
  const Matrix x = CorrelatedInputs(500, 230, 14);
  QuantizerSpec spec = Gptq(4, 128, true, QuantizationOrder::kNone);
  spec.damp = 30;
  ExpectSame(*device, weight, &x, spec);
}

TEST(DeviceQuantizer, OtherMethodsAgree) {
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

TEST(DeviceQuantizer, OtherMethodsAgreeOnAWideLayer) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  const Matrix weight = RandomMatrix(160, 330, 17);
  const Matrix x = CorrelatedInputs(400, 330, 18);
  for (const QuantizationMethod method :
       {QuantizationMethod::kRtn, QuantizationMethod::kNf4, QuantizationMethod::kLlmInt8}) {
    ExpectSame(*device, weight, &x, testing::SpecOf(method));
  }
}

TEST(DeviceQuantizer, AgreesOnDeadAndEqualInputs) {
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

TEST(DeviceQuantizer, AgreesWhenNumbersAreNotFinite) {
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

TEST(DeviceQuantizer, AgreesWhenAWeightOverflowsItsScale) {
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

TEST(DeviceQuantizer, AgreesWithTooFewTokens) {
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
  ExpectSame(*device, weight, &x, testing::SpecOf(QuantizationMethod::kGptq));
}

TEST(DeviceQuantizer, DampsMoreWhereHHasNoFactor) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  const Matrix weight = RandomMatrix(6, 3, 28);
  Matrix x(1, 3);
  x.values = {1, 1, 1};
  QuantizerSpec spec = Gptq(4, -1, true, QuantizationOrder::kStaticAct);
  spec.damp = 0;
  ExpectSame(*device, weight, &x, spec);
}

TEST(DeviceQuantizer, BatchesGiveTheBitsOfSingleLayers) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  DeviceRun run(*device);
  std::vector<DeviceLayer> layers;
  std::vector<const DeviceGram*> grams;
  for (uint64_t i = 0; i < 3; ++i) {
    grams.push_back(run.Gram(CorrelatedInputs(120, 70, 30 + i)));
  }
  const DeviceGram* other = run.Gram(CorrelatedInputs(90, 33, 40));
  for (const QuantizationMethod method : testing::kAllMethods) {
    const QuantizerSpec spec = testing::SpecOf(method);
    // Different inputs, then the same, then another shape, in mixed order.
    for (uint64_t i = 0; i < 5; ++i) {
      layers.push_back(run.Layer(RandomMatrix(20, 70, 50 + i), grams[i % 3], spec));
      if (i % 2 == 0) layers.push_back(run.Layer(RandomMatrix(9, 33, 60 + i), other, spec));
    }
  }
  // More than go together.
  for (uint64_t i = 0; i < 20; ++i) {
    layers.push_back(
        run.Layer(RandomMatrix(3, 33, 70 + i), other, testing::SpecOf(QuantizationMethod::kGptq)));
  }
  const std::vector<QuantizedWeight> together = run.Quantize(layers);
  for (size_t i = 0; i < layers.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectIdentical(together[i], run.Quantize({layers[i]})[0]);
  }
  const std::vector<QuantizedWeight> again = run.Quantize(layers);
  for (size_t i = 0; i < layers.size(); ++i) ExpectIdentical(together[i], again[i]);
}

TEST(DeviceQuantizer, WritesWhereItIsTold) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  DeviceRun run(*device);
  const Matrix weight = RandomMatrix(8, 32, 80);
  DeviceLayer layer = run.Layer(weight, nullptr, testing::SpecOf(QuantizationMethod::kRtn));
  layer.dequantized = *device->arena().TakeArray<float>(8 * 32, "result");
  layer.codes = *device->arena().TakeArray<uint8_t>(8 * 32, "result");
  const int64_t used = device->arena().used();
  {
    DeviceQuantizer quantizer(*device);
    ASSERT_TRUE(quantizer.Begin({&layer, 1}).ok());
    const absl::StatusOr<std::vector<DeviceResult>> results = quantizer.Collect();
    ASSERT_TRUE(results.ok()) << results.status();
    const DeviceResult& result = (*results)[0];
    EXPECT_EQ(result.dequantized, layer.dequantized);
    EXPECT_EQ(result.codes, layer.codes);
    const absl::StatusOr<QuantizedWeight> host = internal::CopyToHost(*device, result);
    ASSERT_TRUE(host.ok());
    double expected = 0;
    for (size_t i = 0; i < weight.values.size(); ++i) {
      expected += std::pow(static_cast<double>(weight.values[i] - host->dequantized[i]), 2);
    }
    ASSERT_TRUE(result.squared_error.has_value());
    EXPECT_NEAR(*result.squared_error, expected, 1e-12 * expected);
  }
  EXPECT_EQ(device->arena().used(), used);
}

TEST(DeviceQuantizer, RefusesBadLayers) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  DeviceRun run(*device);
  const Matrix weight = RandomMatrix(4, 8, 90);
  const DeviceGram* gram = run.Gram(CorrelatedInputs(20, 8, 91));
  const absl::StatusOr<DeviceGram> unfinished = DeviceGram::Create(*device, 8);
  ASSERT_TRUE(unfinished.ok());
  const DeviceGram* narrow = run.Gram(CorrelatedInputs(20, 7, 92));
  const DeviceLayer good = run.Layer(weight, gram, testing::SpecOf(QuantizationMethod::kGptq));
  const int64_t used = device->arena().used();
  const auto refused = [&](const DeviceLayer& layer, absl::StatusCode code) {
    DeviceQuantizer quantizer(*device);
    const DeviceLayer layers[] = {good, layer};
    EXPECT_EQ(quantizer.Begin(layers).code(), code) << quantizer.Begin(layers);
    EXPECT_EQ(quantizer.Collect().status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(device->arena().used(), used);
    EXPECT_EQ(DeviceQuantizer::WorkingBytes(*device, layers).status().code(), code);
  };
  DeviceLayer layer = good;
  layer.spec.bits = 5;
  refused(layer, absl::StatusCode::kInvalidArgument);
  layer = good;
  layer.spec.clip = ClipSearch::kMse;
  refused(layer, absl::StatusCode::kUnimplemented);
  layer = good;
  layer.weight = nullptr;
  refused(layer, absl::StatusCode::kInvalidArgument);
  layer = good;
  layer.rows = -1;
  refused(layer, absl::StatusCode::kInvalidArgument);
  layer = good;
  layer.gram = nullptr;
  refused(layer, absl::StatusCode::kInvalidArgument);
  layer.spec = testing::SpecOf(QuantizationMethod::kAwq);
  refused(layer, absl::StatusCode::kInvalidArgument);
  layer = good;
  layer.gram = &*unfinished;
  refused(layer, absl::StatusCode::kFailedPrecondition);
  layer.gram = narrow;
  refused(layer, absl::StatusCode::kInvalidArgument);
}

TEST(DeviceQuantizer, TakesEmptyWeightsAndNoLayers) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  DeviceRun run(*device);
  EXPECT_TRUE(run.Quantize({}).empty());
  for (const int64_t rows : {0, 3}) {
    const DeviceLayer layer{
        .rows = rows, .cols = rows == 0 ? 5 : 0, .spec = testing::SpecOf(QuantizationMethod::kRtn)};
    const QuantizedWeight got = run.Quantize({layer})[0];
    EXPECT_EQ(got.status, LayerStatus::kUnsupported);
    EXPECT_THAT(got.status_detail, HasSubstr("the weight is empty"));
  }
}

TEST(DeviceQuantizer, SaysHowMuchMemoryItTakes) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  DeviceRun run(*device);
  const DeviceGram* gram = run.Gram(CorrelatedInputs(300, 140, 100));
  const DeviceGram* second = run.Gram(CorrelatedInputs(300, 140, 101));
  internal::Arena& arena = device->arena();
  for (const QuantizationMethod method : testing::kAllMethods) {
    const QuantizerSpec spec = testing::SpecOf(method);
    const std::vector<DeviceLayer> layers = {run.Layer(RandomMatrix(20, 140, 102), gram, spec),
                                             run.Layer(RandomMatrix(20, 140, 103), second, spec)};
    const absl::StatusOr<int64_t> need = DeviceQuantizer::WorkingBytes(*device, layers);
    ASSERT_TRUE(need.ok());
    const std::vector<QuantizedWeight> roomy = run.Quantize(layers);
    const int64_t used = arena.used();
    {
      internal::ArenaScope scope(arena);
      ASSERT_TRUE(arena.Take((arena.remaining() - *need) / 256 * 256, "filler").ok());
      const std::vector<QuantizedWeight> tight = run.Quantize(layers);
      for (size_t i = 0; i < layers.size(); ++i) ExpectIdentical(tight[i], roomy[i]);
    }
    {
      internal::ArenaScope scope(arena);
      ASSERT_TRUE(arena.Take((arena.remaining() - *need / 2) / 256 * 256, "filler").ok());
      DeviceQuantizer quantizer(*device);
      const int64_t before = arena.used();
      EXPECT_EQ(quantizer.Begin(layers).code(), absl::StatusCode::kResourceExhausted);
      EXPECT_EQ(arena.used(), before);
    }
    EXPECT_EQ(arena.used(), used);
  }
}

TEST(DeviceQuantizer, StopsWhenCancelled) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  DeviceRun run(*device);
  const DeviceGram* gram = run.Gram(CorrelatedInputs(60, 20, 110));
  const Matrix weight = RandomMatrix(4, 20, 111);
  for (const QuantizationMethod method : testing::kAllMethods) {
    const DeviceLayer layer = run.Layer(weight, gram, testing::SpecOf(method));
    const int64_t used = device->arena().used();
    int cancelled = 0;
    for (int looks = 0;; ++looks) {
      ExecutionContext context;
      testing::CancelAt clock(context.cancel, looks);
      context.clock = &clock;
      context.deadline = std::chrono::hours(1);
      DeviceQuantizer quantizer(*device);
      absl::Status status = quantizer.Begin({&layer, 1}, context);
      if (status.ok()) status = quantizer.Collect(context).status();
      if (!clock.fired()) {
        EXPECT_TRUE(status.ok()) << status;
        break;
      }
      // The last look has no successor that could see it.
      if (!status.ok()) {
        EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
        ++cancelled;
      }
    }
    EXPECT_GT(cancelled, 10);
    EXPECT_EQ(device->arena().used(), used);
  }
  EXPECT_TRUE(device->Synchronize().ok());
}

}  // namespace
}  // namespace ptqwatch
