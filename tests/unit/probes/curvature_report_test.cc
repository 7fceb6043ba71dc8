// Tests the curvature in reports beyond the first eigenvalue and the trace.

#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <vector>

#include "ATen/ops/zeros.h"
#include "probes/curvature_probe.h"
#include "unit/curvature/tanh_net.h"

namespace ptqwatch::internal {
namespace curvature_report_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Net = testing::TanhNet;

CurvatureReport Curvature(Net& net) {
  auto measurement = net.Measure();
  EXPECT_TRUE(measurement.ok()) << measurement.status();
  return *Net::Run(**measurement).curvature;
}

std::vector<std::string> Names(const CurvatureReport& curvature) {
  std::vector<std::string> names;
  for (const LayerCurvature& layer : curvature.layers) names.push_back(layer.name);
  return names;
}

TEST(CurvatureReport, BothEndsAndTheNextLargest) {
  Net net;
  net.options.curvature.top_eigenvalues = 3;
  net.options.curvature.bottom_eigenvalue = true;
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok()) << measurement.status();
  ProbeState state;
  const CurvatureReport cold = *Net::Run(**measurement, &state).curvature;
  ASSERT_EQ(cold.status, ProbeStatus::kOk) << cold.status_detail;
  EXPECT_EQ(cold.eigenvalue_method, EigenvalueMethod::kLanczos);
  ASSERT_EQ(cold.top_eigenvalues.size(), 3u);
  EXPECT_EQ(cold.top_eigenvalues[0].value, cold.top_eigenvalue);
  EXPECT_GE(*cold.top_eigenvalue_upper, *cold.top_eigenvalue);
  EXPECT_GE(*cold.top_eigenvalues[0].value, *cold.top_eigenvalues[1].value);
  EXPECT_GE(*cold.top_eigenvalues[1].value, *cold.top_eigenvalues[2].value);
  EXPECT_EQ(cold.top_eigenvalues[1].start, EigenvalueStart::kCold);
  EXPECT_LT(*cold.bottom_eigenvalue, 0);
  EXPECT_LE(*cold.bottom_eigenvalue_residual_ratio, 0.02);
  int64_t products = 0;
  for (const EigenvalueReport& pair : cold.top_eigenvalues) products += pair.products;
  EXPECT_GT(cold.hessian_products, products + cold.trace_probes);

  const CurvatureReport warm = *Net::Run(**measurement, &state).curvature;
  for (const EigenvalueReport& pair : warm.top_eigenvalues)
    EXPECT_EQ(pair.start, EigenvalueStart::kWarm);
  EXPECT_NEAR(*warm.bottom_eigenvalue, *cold.bottom_eigenvalue,
              0.01 * std::abs(*cold.bottom_eigenvalue));
  EXPECT_LT(warm.hessian_products, cold.hessian_products);
}

TEST(CurvatureReport, TheLossAlongAnErrorIsSplitIntoTermsAndLayers) {
  Net net;
  net.options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 8, .group_size = 8}};
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok()) << measurement.status();
  const Report report = Net::Run(**measurement);
  const QuantizationReport& rtn = report.quantization[0];
  EXPECT_NEAR(*rtn.gradient_term_nats + *rtn.curvature_term_nats, *rtn.predicted_delta_nats, 1e-12);
  EXPECT_NEAR(*rtn.curvature_along_error * std::pow(*rtn.displacement_norm, 2) / 2,
              *rtn.curvature_term_nats, 1e-5 * std::abs(*rtn.curvature_term_nats));
  EXPECT_GE(*rtn.top_eigenvector_alignment, 0);
  EXPECT_LT(*rtn.top_eigenvector_alignment, 0.5);
  double gradient = 0;
  double curvature = 0;
  for (const LayerQuantization& layer : rtn.layers) {
    gradient += *layer.gradient_term_nats;
    curvature += *layer.curvature_term_nats;
  }
  EXPECT_NEAR(gradient, *rtn.gradient_term_nats, 1e-12);
  EXPECT_NEAR(curvature, *rtn.curvature_term_nats, 1e-12);
  std::vector<double> scales;
  for (const LossAlong& along : rtn.loss_along) scales.push_back(along.scale);
  EXPECT_THAT(scales, ElementsAre(0.25, 0.5, 0.75, 1, 1.25, 1.5));
  EXPECT_EQ(rtn.loss_along[3].delta_nats, rtn.curvature_batch_delta_nats);
  EXPECT_EQ(rtn.loss_along[3].delta_stderr_nats, rtn.curvature_batch_delta_stderr_nats);
  EXPECT_EQ(rtn.loss_along[3].predicted_delta_nats, rtn.predicted_delta_nats);
  EXPECT_FALSE(rtn.beyond_quadratic_scale);
  for (const LossAlong& along : rtn.loss_along) {
    EXPECT_GT(*along.delta_stderr_nats, 0);
    EXPECT_NEAR(*along.predicted_delta_nats, *along.delta_nats, 0.05 * std::abs(*along.delta_nats));
  }
}

TEST(CurvatureReport, SaysWhereTheLossLeavesItsQuadratic) {
  Net net;
  net.live.resize(2);
  // At its minimum, with a term of fourth order that exceeds the quadratic along any error.
  net.losses = [](const TensorMap& p, const Batch& b) -> LossValues {
    const at::Tensor e = at::linear(b[0], p.at("in.weight"), p.at("in.bias")) - b[1];
    return 1 + e.pow(2).sum(1) + 1e4 * e.pow(4).sum(1);
  };
  for (Batch& batch : net.batches) {
    batch[1] = at::linear(batch[0], net.live[0].tensor, net.live[1].tensor);
  }
  net.options.layers.output_head = true;
  net.options.averaging.enabled = false;
  net.options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 4, .group_size = 8},
                            {.method = QuantizationMethod::kRtn, .bits = 3, .group_size = 8}};
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok()) << measurement.status();
  const Report report = Net::Run(**measurement);
  ASSERT_EQ(report.quantization.size(), 2u);
  EXPECT_EQ(report.quantization[0].beyond_quadratic_scale, 0.5) << "not watched: three points";
  EXPECT_EQ(report.quantization[0].loss_along.size(), 3u);
  EXPECT_EQ(report.quantization[1].beyond_quadratic_scale, 0.25);
  EXPECT_EQ(report.quantization[1].loss_along.size(), 6u);
}

TEST(CurvatureReport, TheScopeMayBeOneLayer) {
  Net net;
  net.options.curvature.scope = CurvatureScope::kNamedParameters;
  net.options.curvature.parameters = {"mid.*"};
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok()) << measurement.status();
  const Report report = Net::Run(**measurement);
  EXPECT_EQ(report.curvature->scope, CurvatureScope::kNamedParameters);
  EXPECT_THAT(Names(*report.curvature), ElementsAre("mid.weight"));
  // Predicted and measured are of the same weights, though two layers are quantized.
  const QuantizationReport& gptq = report.quantization[1];
  EXPECT_NEAR(*gptq.predicted_delta_nats, *gptq.curvature_batch_delta_nats,
              0.3 * std::abs(*gptq.curvature_batch_delta_nats));
  EXPECT_FALSE(gptq.layers[0].curvature_term_nats);
  EXPECT_TRUE(gptq.layers[1].curvature_term_nats);

  net.options.curvature.parameters = {"mid.*", "nothing.*"};
  EXPECT_THAT(std::string(net.Measure().status().message()),
              HasSubstr("curvature.parameters: no floating-point parameter matches 'nothing.*'"));
}

TEST(CurvatureReport, NothingIsPredictedForErrorsOutsideOfTheScope) {
  Net net;
  net.options.curvature.scope = CurvatureScope::kNamedParameters;
  net.options.curvature.parameters = {"out.weight"};
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok()) << measurement.status();
  const Report report = Net::Run(**measurement);
  EXPECT_EQ(report.curvature->status, ProbeStatus::kOk) << report.curvature->status_detail;
  EXPECT_FALSE(report.quantization[0].predicted_delta_nats);
  EXPECT_TRUE(report.quantization[0].loss_along.empty());
}

TEST(CurvatureReport, FrozenParametersAreNotAmongAllParameters) {
  Net net;
  net.options.curvature.scope = CurvatureScope::kAllParameters;
  for (NamedTensor& named : net.live) named.tensor.requires_grad_(named.name != "in.bias");
  EXPECT_THAT(Names(Curvature(net)), ElementsAre("in.weight", "mid.weight", "out.weight"));
  net.options.curvature.scope = CurvatureScope::kNamedParameters;
  net.options.curvature.parameters = {"in.*"};
  EXPECT_THAT(Names(Curvature(net)), ElementsAre("in.weight", "in.bias"));
}

TEST(CurvatureReport, TooLittleMemoryForVectorsIsAStatus) {
  Net net;
  const int64_t vector = (24 * 16 + 24 * 24) * 4;
  net.engine.max_vector_bytes = 6 * vector;
  net.options.curvature.eigenvalue_residual_ratio = 0.1;
  net.engine.max_eigenvalue_products = 200;
  CurvatureReport curvature = Curvature(net);
  EXPECT_EQ(curvature.status, ProbeStatus::kOk) << curvature.status_detail;
  EXPECT_EQ(curvature.eigenvalue_method, EigenvalueMethod::kLanczos);
  net.engine.max_vector_bytes = 5 * vector;
  curvature = Curvature(net);
  EXPECT_EQ(curvature.status, ProbeStatus::kFailed);
  EXPECT_THAT(curvature.status_detail, HasSubstr("bytes for 6 vectors"));
  EXPECT_EQ(curvature.mode, HessianMode::kRetainedGraph);  // another one would not help
  EXPECT_FALSE(curvature.top_eigenvalue);
}

TEST(CurvatureReport, ALossThatIsLinearHasNoCurvature) {
  Net net;
  net.losses = [](const TensorMap& p, const Batch& b) -> LossValues {
    const at::Tensor h = at::linear(b[0], p.at("in.weight"), p.at("in.bias"));
    return at::linear(h, p.at("mid.weight").detach()).sum(1);
  };
  net.options.curvature.scope = CurvatureScope::kNamedParameters;
  net.options.curvature.parameters = {"in.*"};
  net.options.layers.output_head = true;
  for (const HessianMode mode : {HessianMode::kAuto, HessianMode::kRecomputedGraph}) {
    net.engine.mode = mode;
    auto measurement = net.Measure();
    ASSERT_TRUE(measurement.ok()) << measurement.status();
    const CurvatureReport curvature = *Net::Run(**measurement).curvature;
    EXPECT_NE(curvature.status, ProbeStatus::kOk);
    EXPECT_THAT(curvature.status_detail, HasSubstr("linear"));
    EXPECT_FALSE(curvature.trace);
  }
}

}  // namespace curvature_report_test
}  // namespace ptqwatch::internal
