// Faults that only a device of loops can be made to have.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/device_quantizer.h"
#include "support/device_run.h"
#include "support/host_device.h"
#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch {
namespace device_faults_test {

using internal::DeviceGram;
using internal::DeviceLayer;
using internal::DeviceQuantizer;
using testing::CorrelatedInputs;
using testing::DeviceRun;
using testing::HostDevice;
using testing::Matrix;
using testing::RandomMatrix;
using testing::ThreadOrder;

std::vector<DeviceLayer> EveryMethod(DeviceRun& run, const DeviceGram* gram) {
  std::vector<DeviceLayer> layers;
  for (const QuantizationMethod method : testing::kAllMethods) {
    for (uint64_t i = 0; i < 2; ++i) {
      layers.push_back(run.Layer(RandomMatrix(70, 140, i), gram, testing::SpecOf(method)));
    }
  }
  for (const QuantizationFormat format : testing::kFloatFormats) {
    QuantizerSpec spec = testing::SpecOf(format, QuantizationMethod::kGptq);
    if (format == QuantizationFormat::kMxfp4) spec.rotation = 32;
    layers.push_back(run.Layer(RandomMatrix(70, 140, 2), gram, spec));
  }
  return layers;
}

TEST(HostDevice, GivesTheSameBitsInAnyOrderOfThreads) {
  HostDevice device(64 << 20);
  DeviceRun run(device);
  const Matrix x = CorrelatedInputs(300, 140, 1);
  device.set_order(ThreadOrder::kForwards);
  const DeviceGram* gram = run.Gram(x);
  const std::vector<QuantizedWeight> forwards = run.Quantize(EveryMethod(run, gram));
  const absl::StatusOr<GramStatistics> moments = gram->CopyToHost();
  device.set_order(ThreadOrder::kBackwards);
  const DeviceGram* backwards_gram = run.Gram(x);
  const std::vector<QuantizedWeight> backwards = run.Quantize(EveryMethod(run, backwards_gram));
  ASSERT_TRUE(moments.ok());
  EXPECT_EQ(backwards_gram->CopyToHost()->sum, moments->sum);
  for (size_t i = 0; i < forwards.size(); ++i) testing::ExpectIdentical(backwards[i], forwards[i]);
}

TEST(DeviceQuantizer, ClimbsTheLadderIfFactorsFail) {
  HostDevice device(64 << 20);
  DeviceRun run(device);
  const Matrix x = CorrelatedInputs(90, 24, 2);
  const Matrix weight = RandomMatrix(6, 24, 3);
  const GramStatistics statistics = testing::Gram(x);
  QuantizerSpec spec = testing::SpecOf(QuantizationMethod::kGptq);
  const std::vector<DeviceLayer> layers = {run.Layer(weight, run.Gram(x), spec)};

  device.FailFactors(1);
  const QuantizedWeight damped = run.Quantize(layers)[0];
  EXPECT_EQ(damped.status, LayerStatus::kDamped);
  EXPECT_EQ(damped.status_detail, "damp 0.1 instead of 0.01");
  spec.damp = 0.1;
  QuantizedWeight expected = testing::RunOk(weight, &statistics, spec);
  expected.status = damped.status;
  expected.status_detail = damped.status_detail;
  testing::ExpectAgrees(damped, expected);

  device.FailFactors(100);
  const QuantizedWeight rounded = run.Quantize(layers)[0];
  EXPECT_EQ(rounded.status_detail, "H could not be factorised with damp 0.01 or any up to 1");
  spec.method = QuantizationMethod::kRtn;
  expected = testing::RunOk(weight, &statistics, spec);
  expected.status = LayerStatus::kRtnFallback;
  expected.status_detail = rounded.status_detail;
  testing::ExpectAgrees(rounded, expected);
}

TEST(DeviceQuantizer, RepeatsOnlyTheLayerThatFailed) {
  HostDevice device(64 << 20);
  DeviceRun run(device);
  const QuantizerSpec spec = testing::SpecOf(QuantizationMethod::kGptq);
  std::vector<DeviceLayer> layers;
  for (uint64_t i = 0; i < 3; ++i) {
    layers.push_back(
        run.Layer(RandomMatrix(6, 24, i), run.Gram(CorrelatedInputs(90, 24, 4 + i)), spec));
  }
  const std::vector<QuantizedWeight> good = run.Quantize(layers);
  device.FailFactors(1);
  const std::vector<QuantizedWeight> got = run.Quantize(layers);
  EXPECT_EQ(got[0].status, LayerStatus::kDamped);
  testing::ExpectIdentical(got[1], good[1]);
  testing::ExpectIdentical(got[2], good[2]);
}

TEST(DeviceQuantizer, FactorisesTheSameInputsOnce) {
  HostDevice device(64 << 20);
  DeviceRun run(device);
  const DeviceGram* gram = run.Gram(CorrelatedInputs(90, 24, 8));
  std::vector<DeviceLayer> layers;
  for (const int bits : {3, 4}) {
    for (uint64_t i = 0; i < 3; ++i) {
      QuantizerSpec spec = testing::SpecOf(QuantizationMethod::kGptq);
      spec.bits = bits;
      layers.push_back(run.Layer(RandomMatrix(6, 24, i), gram, spec));
    }
  }
  const std::vector<QuantizedWeight> got = run.Quantize(layers);
  EXPECT_EQ(device.factors_made(), 1);
  for (const QuantizedWeight& weight : got) EXPECT_EQ(weight.order, got[0].order);
  layers.back().spec.damp = 0.02;
  run.Quantize(layers);
  EXPECT_EQ(device.factors_made(), 3);
}

TEST(DeviceQuantizer, WaitsOnceIfNothingFails) {
  HostDevice device(64 << 20);
  DeviceRun run(device);
  const std::vector<DeviceLayer> layers = EveryMethod(run, run.Gram(CorrelatedInputs(300, 140, 5)));
  DeviceQuantizer quantizer(device);
  const int64_t reads = device.reads();
  ASSERT_TRUE(quantizer.Begin(layers).ok());
  EXPECT_EQ(device.reads(), reads);
  ASSERT_TRUE(quantizer.Collect().ok());
  // And once more for the outlier columns of LLM.int8.
  EXPECT_EQ(device.reads(), reads + 2);
}

TEST(DeviceQuantizer, HandsOnWhatTheDeviceRefuses) {
  HostDevice device(64 << 20);
  DeviceRun run(device);
  const DeviceGram* gram = run.Gram(CorrelatedInputs(90, 24, 6));
  const int64_t used = device.arena().used();
  for (const QuantizationMethod method : testing::kAllMethods) {
    const DeviceLayer layer = run.Layer(RandomMatrix(6, 24, 7), gram, testing::SpecOf(method));
    const int64_t before = device.arena().used();
    bool done = false;
    for (int calls = 0; !done; ++calls) {
      DeviceQuantizer quantizer(device);
      device.FailAfter(calls, absl::InternalError("broken"));
      const absl::Status status = quantizer.Begin({&layer, 1});
      done = status.ok();
      device.FailAfter(0, absl::OkStatus());
      if (!done) {
        EXPECT_EQ(status, absl::InternalError("broken"));
        EXPECT_EQ(device.arena().used(), before);
      }
    }
  }
  EXPECT_GT(device.arena().used(), used);
}

}  // namespace device_faults_test
}  // namespace ptqwatch
