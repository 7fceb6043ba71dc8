#include "cuda/device_quantizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/device_run.h"
#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch {
namespace device_quantizer_test {

using internal::DeviceGram;
using internal::DeviceLayer;
using internal::DeviceQuantizer;
using internal::DeviceResult;
using testing::CorrelatedInputs;
using testing::DeviceRun;
using testing::ExpectIdentical;
using testing::ExpectSameAlone;
using ::testing::HasSubstr;
using testing::Matrix;
using testing::RandomMatrix;

TEST(DeviceQuantizer, BatchesGiveWhatSingleLayersDo) {
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
  // One weight on several grids.
  const Matrix weight = RandomMatrix(20, 70, 49);
  for (const QuantizationMethod method :
       {QuantizationMethod::kRtn, QuantizationMethod::kGptq, QuantizationMethod::kAwq}) {
    QuantizerSpec spec = testing::SpecOf(method);
    for (const int bits : {2, 3, 8}) {
      spec.bits = bits;
      spec.group_size = bits == 3 ? -1 : 16 * bits;
      spec.symmetric = bits == 8;
      spec.scale_dtype = bits == 2 ? ScaleDtype::kFloat16 : ScaleDtype::kFloat32;
      layers.push_back(run.Layer(weight, grams[0], spec));
    }
  }
  for (const QuantizationFormat format : testing::kFloatFormats) {
    for (const QuantizationMethod method : {QuantizationMethod::kRtn, QuantizationMethod::kGptq}) {
      layers.push_back(run.Layer(weight, grams[0], testing::SpecOf(format, method)));
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
    ExpectSameAlone(together[i], run.Quantize({layers[i]})[0]);
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
    const absl::StatusOr<QuantizedWeight> host = testing::CopyToHost(*device, result);
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
    EXPECT_EQ(DeviceQuantizer::WorkingBytes(layers).status().code(), code);
  };
  DeviceLayer layer = good;
  layer.spec.bits = 9;
  refused(layer, absl::StatusCode::kInvalidArgument);
  layer = good;
  layer.spec.method = QuantizationMethod::kAwq;
  layer.spec.clip = ClipSearch::kMse;
  refused(layer, absl::StatusCode::kUnimplemented);
  for (const QuantizationMethod method :
       {QuantizationMethod::kRtn, QuantizationMethod::kGptq, QuantizationMethod::kAwq}) {
    layer.spec = testing::SpecOf(method);
    layer.spec.narrow_range = true;
    layer.spec.clip = ClipSearch::kMse;
    refused(layer, absl::StatusCode::kUnimplemented);
    for (const ClipSearch clip : {ClipSearch::kPercentile, ClipSearch::kStd}) {
      layer.spec = testing::SpecOf(method);
      layer.spec.clip = clip;
      layer.spec.clip_value = 3;
      refused(layer, absl::StatusCode::kUnimplemented);
    }
  }
  layer.spec = testing::SpecOf(QuantizationMethod::kRtn);
  layer.spec.round_scale_last = true;
  refused(layer, absl::StatusCode::kUnimplemented);
  layer.spec = testing::SpecOf(QuantizationMethod::kGptq);
  layer.spec.clip = ClipSearch::kMse;
  layer.spec.min_scale = 0.1;
  refused(layer, absl::StatusCode::kUnimplemented);
  layer = good;
  layer.weight = nullptr;
  refused(layer, absl::StatusCode::kInvalidArgument);
  layer = good;
  layer.rows = -1;
  refused(layer, absl::StatusCode::kInvalidArgument);
  layer = good;
  layer.cols = int64_t{1} << 31;
  refused(layer, absl::StatusCode::kInvalidArgument);
  layer = good;
  EXPECT_TRUE(DeviceQuantizer::Supports(layer.spec));
  for (const QuantizationFormat format : testing::kFloatFormats) {
    EXPECT_TRUE(DeviceQuantizer::Supports(testing::SpecOf(format)));
  }
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
  std::vector<QuantizerSpec> specs = {
      testing::SpecOf(QuantizationFormat::kMxfp4, QuantizationMethod::kRtn),
      testing::SpecOf(QuantizationFormat::kNvfp4, QuantizationMethod::kGptq)};
  for (const QuantizationMethod method : testing::kAllMethods) {
    specs.push_back(testing::SpecOf(method));
  }
  specs.push_back(specs[1]);
  specs.back().rotation = 16;
  for (const QuantizerSpec& spec : specs) {
    const std::vector<DeviceLayer> layers = {run.Layer(RandomMatrix(20, 140, 102), gram, spec),
                                             run.Layer(RandomMatrix(20, 140, 103), second, spec)};
    const absl::StatusOr<int64_t> need = DeviceQuantizer::WorkingBytes(layers);
    ASSERT_TRUE(need.ok());
    const std::vector<QuantizedWeight> roomy = run.Quantize(layers);
    const int64_t used = arena.used();
    {
      internal::ArenaScope scope(arena);
      ASSERT_TRUE(arena.Take((arena.remaining() - *need) / 256 * 256, "filler").ok());
      const std::vector<QuantizedWeight> tight = run.Quantize(layers);
      for (size_t i = 0; i < layers.size(); ++i) ExpectSameAlone(tight[i], roomy[i]);
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

}  // namespace device_quantizer_test
}  // namespace ptqwatch
