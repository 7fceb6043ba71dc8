// A trainer that stacks the weights of all layers in one parameter gets the same numbers as one
// with separate parameters.
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/TensorOperators.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/randint.h"
#include "ATen/ops/tanh.h"
#include "ptqwatch/function_subject.h"
#include "ptqwatch/monitor.h"

namespace ptqwatch {
namespace monitor_stacked_test {

using ::testing::ElementsAre;

constexpr int64_t kLayers = 3;
constexpr int64_t kWidth = 16;

at::Tensor Random(std::vector<int64_t> sizes, uint64_t seed) {
  return at::rand(sizes, at::make_generator<at::CPUGeneratorImpl>(seed)) - 0.5;
}

struct StackedWeights : ::testing::Test {
  // The report on a network whose layer `l` has the weights `layer(tensors, l)`.
  Report Measure(std::vector<NamedTensor> live,
                 std::function<at::Tensor(const TensorMap&, int64_t)> layer) {
    MonitorOptions options{.on_failure = OnFailure::kError, .schedule = {.every = 1}};
    options.quantizers.clear();
    for (int bits : {3, 4}) {
      options.quantizers.push_back(
          {.method = QuantizationMethod::kGptq, .bits = bits, .group_size = 8});
    }
    options.duty_cycle = 1.0;
    options.adapt_plan = false;
    options.layers.output_head = true;
    const auto losses = [layer = std::move(layer)](const TensorMap& tensors, const Batch& batch) {
      at::Tensor x = batch[0];
      for (int64_t l = 0; l < kLayers; ++l) x = x + at::tanh(at::linear(x, layer(tensors, l)));
      return LossValues(at::cross_entropy_loss(x, batch[1], {}, at::Reduction::None));
    };
    const Batch probe = {
        Random({64, kWidth}, 7),
        at::randint(kWidth, {64}, at::make_generator<at::CPUGeneratorImpl>(8), at::kLong)};
    auto monitor = Monitor::Create(
        MakeFunctionSubject({.live = std::move(live), .losses = losses, .probe = {probe}}),
        options);
    EXPECT_TRUE(monitor.ok()) << monitor.status();
    if (!monitor.ok()) return {};
    (*monitor)->OnStep({.step = 1, .learning_rate = 1e-2});
    EXPECT_TRUE((*monitor)->Finish(std::chrono::seconds(60)).ok());
    return (*monitor)->latest()->report;
  }

  const at::Tensor weights = Random({kLayers, kWidth, kWidth}, 1);
};

TEST_F(StackedWeights, HaveTheNumbersOfSeparateOnes) {
  std::vector<NamedTensor> live;
  for (int64_t l = 0; l < kLayers; ++l) {
    live.push_back({"w[" + std::to_string(l) + "]", weights.select(0, l).clone(), true});
  }
  Report separate = Measure(live, [](const TensorMap& tensors, int64_t l) {
    return tensors.at("w[" + std::to_string(l) + "]");
  });
  Report stacked = Measure({{"w", weights, true}}, [](const TensorMap& tensors, int64_t l) {
    return tensors.at("w").select(0, l);
  });
  ASSERT_EQ(separate.quantization.size(), 2u);
  EXPECT_EQ(separate.quantization[0].status, ProbeStatus::kOk);
  EXPECT_EQ(stacked.quantization, separate.quantization);
  EXPECT_EQ(stacked.skipped_layers, separate.skipped_layers);
  ASSERT_TRUE(stacked.curvature.has_value() && separate.curvature.has_value());
  EXPECT_EQ(stacked.curvature->status, ProbeStatus::kOk) << stacked.curvature->status_detail;
  // A product with the Hessian over a different number of tensors may round differently.
  EXPECT_NEAR(*stacked.curvature->trace, *separate.curvature->trace,
              1e-4 * std::abs(*separate.curvature->trace));
  ASSERT_EQ(stacked.curvature->layers.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(stacked.curvature->layers[i].name, separate.curvature->layers[i].name);
    EXPECT_EQ(stacked.curvature->layers[i].parameters, kWidth * kWidth);
    EXPECT_NEAR(*stacked.curvature->layers[i].trace, *separate.curvature->layers[i].trace, 1e-4);
  }
  ASSERT_FALSE(stacked.mixed_precision.empty());
  EXPECT_EQ(stacked.mixed_precision[0].raised_layers, separate.mixed_precision[0].raised_layers);
  EXPECT_EQ(stacked.mixed_precision[0].mean_bits, separate.mixed_precision[0].mean_bits);
}

}  // namespace monitor_stacked_test
}  // namespace ptqwatch
