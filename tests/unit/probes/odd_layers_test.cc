// Layers and dtypes at the edge of what a trainer may have.
#include <gmock/gmock.h>

#include <cmath>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/zeros.h"
#include "unit/curvature/tanh_net.h"

namespace ptqwatch::internal {
namespace odd_layers_test {

using testing::Waves;

class OddLayers : public ::testing::TestWithParam<at::ScalarType> {};

// One output, one input, groups that do not divide the inputs, a stored transpose, and only zeros.
TEST_P(OddLayers, AreMeasured) {
  const at::ScalarType dtype = GetParam();
  const auto weight = [&](std::vector<int64_t> sizes, int64_t phase) {
    return Waves(std::move(sizes), 0.7, phase).to(dtype);
  };
  const std::vector<NamedTensor> live = {{"narrow", weight({1, 6}, 1), true},
                                         {"wide", weight({5, 1}, 2), true},
                                         {"turned", weight({5, 7}, 3).t(), true},
                                         {"zeros", at::zeros({7, 5}, dtype), true},
                                         {"out", weight({4, 7}, 4), true}};
  const auto losses = [](const TensorMap& w, const Batch& b) -> LossValues {
    const at::Tensor h = at::linear(at::linear(b[0], w.at("narrow")), w.at("wide")).tanh();
    const at::Tensor x = (at::linear(h, w.at("turned")) + at::linear(h, w.at("zeros"))).tanh();
    return at::cross_entropy_loss(at::linear(x, w.at("out")).to(at::kFloat), b[1], {},
                                  at::Reduction::None);
  };
  std::vector<Batch> probe;
  for (int64_t i = 0; i < 3; ++i) {
    probe.push_back({Waves({40, 6}, 2, 100 * i).to(dtype), at::arange(40, at::kLong) % 4});
  }
  MonitorOptions options;
  options.layers.output_head = true;
  options.curvature.enabled = false;
  for (QuantizerSpec& spec : options.quantizers) spec.group_size = 4;
  const auto subject = MakeFunctionSubject({.live = live, .losses = losses, .probe = probe});
  auto suite = testing::OpenProbes(*subject, options);
  ASSERT_TRUE(suite.ok()) << suite.status();
  Snapshot snapshot;
  for (const NamedTensor& named : live) snapshot.tensors.push_back(named.tensor);
  (*suite)->Load(snapshot);
  const Report report = testing::MeasureReport(**suite);
  EXPECT_EQ(report.probe_status, ProbeStatus::kOk) << report.probe_status_detail;
  ASSERT_EQ(report.quantization.size(), options.quantizers.size());
  for (const QuantizationReport& entry : report.quantization) {
    SCOPED_TRACE(ShortName(KeyOf(entry)));
    EXPECT_EQ(entry.status, ProbeStatus::kOk) << entry.status_detail;
    EXPECT_EQ(entry.coverage_ratio, 1);
    EXPECT_EQ(entry.layers.size(), 5u);
    ASSERT_TRUE(entry.error_ratio);
    EXPECT_LT(std::abs(*entry.error_ratio), 1);
    EXPECT_GT(entry.displacement_norm, 0);
  }
  ASSERT_TRUE(report.noise);
  EXPECT_EQ(report.noise->status, ProbeStatus::kOk) << report.noise->status_detail;
}

INSTANTIATE_TEST_SUITE_P(Dtypes, OddLayers,
                         ::testing::Values(at::kFloat, at::kDouble, at::kBFloat16, at::kHalf));

}  // namespace odd_layers_test
}  // namespace ptqwatch::internal
