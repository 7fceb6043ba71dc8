#include "monitor/measured_costs.h"

#include <algorithm>

namespace ptqwatch::internal {
namespace {

// Rates of one core, for a first guess; the first snapshot shows the real ones.
constexpr double kGramRate = 3e10;
constexpr double kQuantizeRate = 1e10;
constexpr int64_t kMinUnits = 8;

// Operations of quantizing a [rows, columns] weight.
double Operations(const QuantizerSpec& spec, double rows, double columns) {
  const double square = columns * columns;
  // H is factorised and inverted; then every column updates those after it. The energy of the
  // output and RTN's loss are those that RTN gave.
  if (spec.method == QuantizationMethod::kGptq) return square * (columns + 2 * rows);
  // A scale search over some 20 grids, each compared through H.
  if (spec.method == QuantizationMethod::kAwq) return 40 * rows * square;
  return 2 * rows * square + 10 * rows * columns;
}

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
          .min_probe_batches = (kMinUnits + units - 1) / units,
          .calibration_batches = std::ssize(session.calibration()),
          .min_calibration_batches = (inputs / 2 + tokens - 1) / tokens,
          .curvature_sequences =
              curvature != nullptr && curvature->disabled().empty() ? curvature->sequences() : 0};
}

SnapshotCosts CostsAtCreate(ProbeSuite& suite, const MonitorOptions& options) {
  const QuantizationProbe& quantization = suite.quantization();
  const CapturePlan& plan = suite.session().plan();
  SnapshotCosts costs;
  costs.probe_batch = quantization.probe_batch_seconds();
  double gram = 0;
  for (int64_t inputs : plan.gram_inputs) {
    gram += static_cast<double>(inputs) * static_cast<double>(inputs);
  }
  costs.calibration_batch =
      quantization.calibration_batch_seconds() +
      static_cast<double>(quantization.calibration_batch_tokens()) * gram / kGramRate;
  for (const QuantizerSpec& spec : options.quantizers) {
    for (const CoveredLayer& layer : plan.layers) {
      costs.quantize +=
          Operations(spec, static_cast<double>(layer.outputs), static_cast<double>(layer.inputs)) /
          kQuantizeRate;
    }
  }
  if (suite.curvature() != nullptr) {
    costs.curvature_fixed = suite.curvature()->fixed_seconds();
    costs.curvature_sequence = suite.curvature()->sequence_seconds();
  }
  return costs;
}

}  // namespace ptqwatch::internal
