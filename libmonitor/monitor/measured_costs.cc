#include "monitor/measured_costs.h"

#include <algorithm>

#include "monitor/cost_model.h"

namespace ptqwatch::internal {
namespace {

// Rates of one core, for a first guess; the first snapshot shows the real ones.
constexpr double kGramRate = 3e10;
constexpr double kQuantizeRate = 1e10;

}  // namespace

PlanRange PlanRangeOf(ProbeSuite& suite, const MonitorOptions& options) {
  ModelSession& session = suite.session();
  int64_t inputs = 1;
  for (const CoveredLayer& layer : session.plan().layers) inputs = std::max(inputs, layer.inputs);
  const int64_t units = suite.quantization().probe_batch_units();
  const int64_t tokens = std::max<int64_t>(1, suite.quantization().calibration_batch_tokens());
  const CurvatureProbe* curvature = suite.curvature();
  return {.quantizers = std::ssize(options.quantizers),
          .probe_batches = std::ssize(session.probe()),
          .min_probe_batches = MinProbeBatches(units),
          .calibration_batches = std::ssize(session.calibration()),
          .min_calibration_batches = MinCalibrationBatches(inputs, tokens),
          .curvature_sequences =
              curvature != nullptr && curvature->disabled().empty() ? curvature->sequences() : 0};
}

SnapshotCosts CostsAtCreate(ProbeSuite& suite, const MonitorOptions& options) {
  const QuantizationProbe& quantization = suite.quantization();
  const CapturePlan& plan = suite.session().plan();
  SnapshotCosts costs;
  costs.probe_batch = quantization.probe_batch_seconds();
  // Gram matrices that do not fit into memory together take several forward passes.
  const int64_t passes =
      std::max<int64_t>(1, PassesOver(plan.gram_inputs, options.max_gram_bytes).passes);
  costs.calibration_batch = static_cast<double>(passes) * quantization.calibration_batch_seconds();
  for (int64_t inputs : plan.gram_inputs) {
    costs.calibration_batch +=
        GramFlop(quantization.calibration_batch_tokens(), inputs) / kGramRate;
  }
  for (const QuantizerSpec& spec : options.quantizers) {
    for (const CoveredLayer& layer : plan.layers) {
      costs.quantize += QuantizeFlop(spec, layer.outputs, layer.inputs) / kQuantizeRate;
    }
  }
  if (suite.curvature() != nullptr) {
    costs.curvature_fixed = suite.curvature()->fixed_seconds();
    costs.curvature_sequence = suite.curvature()->sequence_seconds();
  }
  return costs;
}

}  // namespace ptqwatch::internal
