#include "probes/layer_costs.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace ptqwatch::internal {
namespace layer_costs_test {

CapturePlan PlanOf(const std::vector<std::pair<int64_t, int64_t>>& shapes) {
  CapturePlan plan;
  for (const auto& [outputs, inputs] : shapes) {
    CoveredLayer layer;
    layer.outputs = outputs;
    layer.inputs = inputs;
    plan.layers.push_back(layer);
    plan.gram_inputs.push_back(inputs);
  }
  return plan;
}

TEST(LayerCosts, AreCountedByLayerAndQuantizer) {
  const LayerCosts one = CountLayerCosts(PlanOf({{8, 16}}), {LayerSpecs(1)}, 10);
  EXPECT_GT(one.quantize, 0);
  const LayerCosts four =
      CountLayerCosts(PlanOf({{8, 16}, {8, 16}}), {LayerSpecs(2), LayerSpecs(2)}, 30);
  EXPECT_DOUBLE_EQ(four.quantize, 4 * one.quantize);
  EXPECT_DOUBLE_EQ(four.gram_batch, 2 * 3 * one.gram_batch);
}

TEST(LayerCosts, AreSmallOnAGpu) {
  const auto on = [](at::Device device) {
    return CountLayerCosts(PlanOf({{4096, 4096}}), {LayerSpecs(1)}, 1024, RatesOn(device));
  };
  EXPECT_LT(100 * on(at::Device(at::kCUDA, 1)).quantize, on(at::Device(at::kCPU)).quantize);
  EXPECT_LT(100 * on(at::Device(at::kCUDA, 1)).gram_batch, on(at::Device(at::kCPU)).gram_batch);
}

}  // namespace layer_costs_test
}  // namespace ptqwatch::internal
