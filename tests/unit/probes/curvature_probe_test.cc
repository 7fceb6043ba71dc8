#include "probes/curvature_probe.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/rand.h"
#include "ptqwatch/function_subject.h"
#include "ptqwatch/monitor.h"
#include "snapshot/generator_guard.h"
#include "support/recording_exporter.h"
#include "unit/curvature/tanh_net.h"

namespace ptqwatch::internal {
namespace curvature_probe_test {

using ::testing::HasSubstr;
using Net = testing::TanhNet;

TEST(CurvatureProbe, MeasuresTheQuantizedWeights) {
  Net net;
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok()) << measurement.status();
  const Report report = Net::Run(**measurement);
  ASSERT_TRUE(report.curvature);
  const CurvatureReport& curvature = *report.curvature;
  ASSERT_EQ(curvature.status, ProbeStatus::kOk) << curvature.status_detail;
  EXPECT_EQ(curvature.scope, CurvatureScope::kQuantizedWeights);
  EXPECT_EQ(curvature.mode, HessianMode::kRetainedGraph);
  EXPECT_EQ(curvature.batch_tokens, 300);
  // The output head is not quantized.
  EXPECT_EQ(curvature.parameters, 24 * 16 + 24 * 24);
  ASSERT_EQ(curvature.layers.size(), 2u);
  EXPECT_EQ(curvature.layers[0].name, "in.weight");
  double trace = 0;
  double weighted = 0;
  for (const LayerCurvature& layer : curvature.layers) {
    trace += *layer.trace;
    weighted += *layer.trace * *layer.weight_mean_square;
  }
  EXPECT_NEAR(trace, *curvature.trace, 1e-9 * std::abs(trace));
  EXPECT_NEAR(weighted, *curvature.weighted_trace, 1e-9 * std::abs(weighted));
  EXPECT_GT(*curvature.top_eigenvalue, 0);
  EXPECT_LE(*curvature.top_eigenvalue_residual_ratio, 0.02);
  EXPECT_GE(curvature.trace_probes, 8);
  EXPECT_GT(curvature.hessian_products, curvature.trace_probes);
}

TEST(CurvatureProbe, PredictsTheLossChangeOfEachQuantizerOnItsBatch) {
  Net net;
  net.options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 8, .group_size = 8},
                            {.method = QuantizationMethod::kGptq, .bits = 4, .group_size = 8}};
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok()) << measurement.status();
  const Report report = Net::Run(**measurement);
  const QuantizationReport& fine = report.quantization[0];
  const QuantizationReport& coarse = report.quantization[1];
  EXPECT_NEAR(*fine.predicted_delta_nats, *fine.curvature_batch_delta_nats,
              0.02 * std::abs(*fine.curvature_batch_delta_nats));
  EXPECT_NEAR(*coarse.predicted_delta_nats, *coarse.curvature_batch_delta_nats,
              0.3 * std::abs(*coarse.curvature_batch_delta_nats));
}

TEST(CurvatureProbe, BothModesAgree) {
  Net exact;
  Net difference;
  difference.engine.mode = HessianMode::kFiniteDifference;
  auto one = exact.Measure();
  auto other = difference.Measure();
  ASSERT_TRUE(one.ok() && other.ok());
  const Report a = Net::Run(**one);
  const Report b = Net::Run(**other);
  EXPECT_EQ(b.curvature->mode, HessianMode::kFiniteDifference);
  EXPECT_LT(*b.curvature->step_check_ratio, 1e-3);
  EXPECT_FALSE(a.curvature->step_check_ratio);
  // The trace leaves to the search what it found, here by one-sided differences: less exact.
  EXPECT_NEAR(*b.curvature->trace, *a.curvature->trace, 5e-3 * std::abs(*a.curvature->trace));
  EXPECT_NEAR(*b.curvature->top_eigenvalue, *a.curvature->top_eigenvalue,
              1e-3 * *a.curvature->top_eigenvalue);
  EXPECT_NEAR(*b.quantization[0].predicted_delta_nats, *a.quantization[0].predicted_delta_nats,
              1e-2 * std::abs(*a.quantization[0].predicted_delta_nats));
  EXPECT_EQ(*b.quantization[0].curvature_batch_delta_nats,
            *a.quantization[0].curvature_batch_delta_nats);
}

TEST(CurvatureProbe, StartsFromTheEigenvectorOfTheReportBefore) {
  Net net;
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok());
  ProbeState state;
  const Report cold = Net::Run(**measurement, &state);
  EXPECT_TRUE(state.vectors.contains("top.0"));
  const Report warm = Net::Run(**measurement, &state);
  EXPECT_EQ(warm.curvature->top_eigenvalues.at(0).start, EigenvalueStart::kWarm);
  EXPECT_EQ(warm.probe_state_sequence, cold.sequence);
  EXPECT_LE(warm.curvature->hessian_products, cold.curvature->hessian_products);
  EXPECT_NEAR(*warm.curvature->top_eigenvalue, *cold.curvature->top_eigenvalue,
              0.01 * *cold.curvature->top_eigenvalue);
}

TEST(CurvatureProbe, ScopeMayBeAllParameters) {
  Net net;
  net.options.curvature.scope = CurvatureScope::kAllParameters;
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok());
  const Report report = Net::Run(**measurement);
  EXPECT_EQ(report.curvature->scope, CurvatureScope::kAllParameters);
  EXPECT_EQ(report.curvature->parameters, 24 * 16 + 24 + 24 * 24 + 8 * 24);
  EXPECT_EQ(report.curvature->layers.size(), 4u);
  EXPECT_TRUE(report.quantization[0].predicted_delta_nats);
}

TEST(CurvatureProbe, IsAbsentIfSwitchedOff) {
  Net net;
  net.options.curvature.enabled = false;
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok());
  const Report report = Net::Run(**measurement);
  EXPECT_FALSE(report.curvature);
  EXPECT_FALSE(report.quantization[0].predicted_delta_nats);
  EXPECT_EQ(report.quantization[0].status, ProbeStatus::kOk);
}

TEST(CurvatureProbe, AClosureWithoutGradientsLeavesTheRestOfTheReportAlone) {
  Net net;
  net.losses = [losses = net.losses](const TensorMap& p, const Batch& b) {
    at::NoGradGuard no_grad;
    return losses(p, b);
  };
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok()) << measurement.status();
  EXPECT_THAT(testing::DescribeProbes(**measurement), HasSubstr("curvature: off, the loss has"));
  const Report report = Net::Run(**measurement);
  EXPECT_EQ(report.curvature->status, ProbeStatus::kDisabled);
  EXPECT_THAT(report.curvature->status_detail, HasSubstr("NoGradGuard"));
  EXPECT_FALSE(report.curvature->trace);
  EXPECT_EQ(report.quantization[0].status, ProbeStatus::kOk);

  net.engine.mode = HessianMode::kFiniteDifference;
  const absl::Status asked = net.Measure().status();
  EXPECT_THAT(std::string(asked.message()), HasSubstr("curvature.mode = finite_difference: "));
}

TEST(CurvatureProbe, RandomDrawsWithGradientsOnSwitchItOff) {
  Net net;
  net.losses = [losses = net.losses](const TensorMap& p, const Batch& b) {
    if (at::GradMode::is_enabled()) at::rand({1});
    return losses(p, b);
  };
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok()) << measurement.status();
  EXPECT_THAT(testing::DescribeProbes(**measurement),
              HasSubstr("curvature: off, losses draws random numbers"));
  GeneratorGuard generators;
  const Report report = Net::Run(**measurement);
  EXPECT_FALSE(generators.drew());
  EXPECT_EQ(report.curvature->status, ProbeStatus::kDisabled);
  EXPECT_THAT(report.curvature->status_detail, HasSubstr("when gradients are on"));
  EXPECT_EQ(report.quantization[0].status, ProbeStatus::kOk);

  net.engine.mode = HessianMode::kRetainedGraph;
  const absl::Status asked = net.Measure().status();
  EXPECT_THAT(std::string(asked.message()), HasSubstr("random numbers"));
}

TEST(CurvatureProbe, WeightsOfAnotherShapeSwitchItOff) {
  Net net;
  net.losses = [losses = net.losses](const TensorMap& p, const Batch& b) -> LossValues {
    LossValues all = losses(p, b);
    // Weights that do not fit the values, and would be broadcast to a single sequence's.
    if (at::GradMode::is_enabled()) all.weights = at::ones({7});
    return all;
  };
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok()) << measurement.status();
  EXPECT_THAT(testing::DescribeProbes(**measurement),
              HasSubstr("curvature: off, curvature batch 0: losses returned weights of shape [7] "
                        "for values of shape [1]"));
  const Report report = Net::Run(**measurement);
  EXPECT_EQ(report.curvature->status, ProbeStatus::kDisabled);
  EXPECT_EQ(report.quantization[0].status, ProbeStatus::kOk);
}

TEST(CurvatureProbe, WeightsInHalfPrecisionAreRefusedForDifferences) {
  Net net;
  for (NamedTensor& named : net.live) named.tensor = named.tensor.to(at::kBFloat16);
  for (Batch& batch : net.batches) batch[0] = batch[0].to(at::kBFloat16);
  net.losses = [losses = net.losses](const TensorMap& p, const Batch& b) -> LossValues {
    return losses(p, b).values.to(at::kFloat);
  };
  net.engine.mode = HessianMode::kFiniteDifference;
  const absl::Status status = net.Measure().status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("BFloat16"));
}

TEST(CurvatureProbe, GraphsThatDoNotFitAreRecomputedWithTheSameResult) {
  Net net;
  auto retained = net.Measure();
  Net small;
  small.engine.max_graph_bytes = 1000;
  auto recomputed = small.Measure();
  ASSERT_TRUE(retained.ok() && recomputed.ok());
  EXPECT_THAT(testing::DescribeProbes(**retained), HasSubstr("curvature: retained_graph, "));
  EXPECT_THAT(testing::DescribeProbes(**recomputed), HasSubstr("curvature: recomputed_graph, "));
  EXPECT_THAT(testing::DescribeProbes(**recomputed),
              HasSubstr("300 examples, gradient graphs of "));
  CurvatureReport a = *Net::Run(**retained).curvature;
  const CurvatureReport b = *Net::Run(**recomputed).curvature;
  EXPECT_EQ(b.mode, HessianMode::kRecomputedGraph);
  EXPECT_GT(*a.graph_bytes, 1000);
  EXPECT_FALSE(b.graph_bytes);
  a.mode = b.mode;
  a.graph_bytes.reset();
  EXPECT_EQ(a, b);
}

// So many evaluations with gradients as the result says run out of memory from now on. LibTorch's
// CPU allocator throws a plain c10::Error.
std::shared_ptr<int> RunOutOfMemory(Net& net) {
  auto failures = std::make_shared<int>(0);
  net.losses = [losses = net.losses, failures](const TensorMap& p, const Batch& b) {
    if (*failures > 0 && at::GradMode::is_enabled()) {
      --*failures;
      at::ones({int64_t{1} << 50});
    }
    return losses(p, b);
  };
  return failures;
}

TEST(CurvatureProbe, GoesOnWithASmallerModeIfMemoryRunsOut) {
  for (const bool asked : {false, true}) {
    Net net;
    if (asked) net.engine.mode = HessianMode::kRetainedGraph;
    const std::shared_ptr<int> failures = RunOutOfMemory(net);
    auto measurement = net.Measure();
    ASSERT_TRUE(measurement.ok()) << measurement.status();
    *failures = 2;  // asked: with the quantized weights and without them
    const Report first = Net::Run(**measurement);
    if (asked) {
      EXPECT_EQ(first.curvature->status, ProbeStatus::kFailed);
      EXPECT_THAT(first.curvature->status_detail, HasSubstr("allocate"));
    } else {
      EXPECT_EQ(first.curvature->status, ProbeStatus::kOk) << first.curvature->status_detail;
      EXPECT_EQ(first.curvature->mode, HessianMode::kFiniteDifference);
    }
    // Memory that was short once may be there again.
    EXPECT_EQ(Net::Run(**measurement).curvature->mode, HessianMode::kRetainedGraph);
  }
}

TEST(CurvatureProbe, DropsTheQuantizedWeightsIfNothingElseMakesRoom) {
  Net net;
  net.engine.mode = HessianMode::kRetainedGraph;
  const std::shared_ptr<int> failures = RunOutOfMemory(net);
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok()) << measurement.status();
  *failures = 1;
  const Report report = Net::Run(**measurement);
  EXPECT_EQ(report.curvature->status, ProbeStatus::kOk) << report.curvature->status_detail;
  for (const QuantizationReport& quantizer : report.quantization) {
    EXPECT_EQ(quantizer.status, ProbeStatus::kOk);
    EXPECT_THAT(quantizer.status_detail, HasSubstr("no curvature along its error"));
    EXPECT_FALSE(quantizer.predicted_delta_nats);
  }
}

TEST(CurvatureProbe, AQuantizedLossThatIsNotFiniteCostsItsOwnPredictionOnly) {
  Net net;
  net.options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 2, .group_size = 8},
                            {.method = QuantizationMethod::kRtn, .bits = 8, .group_size = 8}};
  net.losses = [losses = net.losses, mid = net.live[2].tensor.clone()](const TensorMap& p,
                                                                       const Batch& b) {
    LossValues all = losses(p, b);
    // As a model overflows that is bent too far.
    if ((p.at("mid.weight") - mid).abs().max().item<float>() > 0.05) {
      all.values = all.values * INFINITY;
    }
    return all;
  };
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok()) << measurement.status();
  const Report report = Net::Run(**measurement);
  EXPECT_EQ(report.curvature->status, ProbeStatus::kOk) << report.curvature->status_detail;
  EXPECT_TRUE(report.curvature->top_eigenvalue);
  EXPECT_FALSE(report.quantization[0].predicted_delta_nats);
  EXPECT_FALSE(report.quantization[0].curvature_batch_delta_nats);
  EXPECT_TRUE(report.quantization[1].predicted_delta_nats);
  EXPECT_TRUE(report.quantization[1].curvature_batch_delta_nats);
}

TEST(CurvatureProbe, NonFiniteWeightsAreAStatus) {
  Net net;
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok());
  net.table.entries[2].tensor[1][1] = NAN;
  net.Load(**measurement);
  const Report report = Net::Run(**measurement);
  EXPECT_EQ(report.curvature->status, ProbeStatus::kNonFinite);
  EXPECT_FALSE(report.curvature->top_eigenvalue);
  EXPECT_FALSE(report.quantization[0].predicted_delta_nats);
}

TEST(CurvatureProbe, IsSwitchedOffAloneWhenItKeepsFailing) {
  Net net;
  net.options.on_failure = OnFailure::kError;
  net.options.schedule.every = 1;
  net.options.max_failures_in_a_row = 2;
  net.options.duty_cycle = 1;  // no rests
  auto broken = std::make_shared<std::atomic<bool>>(false);
  net.losses = [losses = net.losses, broken](const TensorMap& p, const Batch& b) {
    if (*broken && at::GradMode::is_enabled()) throw std::runtime_error("no gradients today");
    return losses(p, b);
  };
  auto recording = std::make_shared<testing::Recording>();
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
  auto monitor = Monitor::Create(net.MakeSubject(), net.options, std::move(exporters));
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  *broken = true;
  for (int64_t step = 1; step <= 4; ++step) {
    (*monitor)->OnStep({.step = step, .learning_rate = 0.1});
    ASSERT_TRUE(recording->WaitForReports(static_cast<size_t>(step)));
  }
  const auto reports = recording->Reports();
  EXPECT_EQ(reports[1]->report.curvature->status, ProbeStatus::kFailed);
  EXPECT_THAT(reports[1]->report.curvature->status_detail, HasSubstr("no gradients today"));
  EXPECT_EQ(reports[2]->report.curvature->status, ProbeStatus::kDisabled);
  EXPECT_THAT(reports[3]->report.curvature->status_detail, HasSubstr("2 failures in a row"));
  for (const auto& report : reports) {
    EXPECT_EQ(report->report.quantization[1].status, ProbeStatus::kOk);
  }
}

}  // namespace curvature_probe_test
}  // namespace ptqwatch::internal
