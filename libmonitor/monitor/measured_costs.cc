#include "monitor/measured_costs.h"

#include <algorithm>

#include "quantize/methods.h"

namespace ptqwatch::internal {
namespace {

// Rates of one core, for a first guess; the first snapshot shows the real ones.
constexpr double kGramRate = 3e10;
constexpr double kQuantizeRate = 1e10;
// In a curvature batch, where each example has one loss, whose change scatters by many times its
// mean.
constexpr int64_t kLeastExamples = 64;
constexpr int64_t kMinUnits = 8;

double Real(int64_t value) { return static_cast<double>(value); }

int64_t RoundUp(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// FLOP, a multiply-add as two.
double GramFlop(int64_t tokens, int64_t inputs) {
  return Real(tokens) * Real(inputs) * Real(inputs);
}

PlanRange PlanRangeOf(ProbeSuite& suite, const MonitorOptions& options) {
  ModelSession& session = suite.session();
  int64_t inputs = 1;
  for (const CoveredLayer& layer : session.plan().layers) inputs = std::max(inputs, layer.inputs);
  const int64_t units = suite.quantization().probe_batch_units();
  const int64_t tokens = std::max<int64_t>(1, suite.quantization().calibration_batch_tokens());
  const CurvatureProbe* curvature = suite.curvature();
  return {.quantizers = std::ssize(options.quantizers),
          .probe_batches = std::ssize(session.probe()),
          // Enough loss values for a standard error.
          .min_probe_batches = RoundUp(kMinUnits, units),
          .calibration_batches = std::ssize(session.calibration()),
          // Enough tokens that Gram matrices are not far from full rank.
          .min_calibration_batches = RoundUp(inputs / 2, tokens),
          .curvature_sequences =
              curvature != nullptr && curvature->disabled().empty() ? curvature->sequences() : 0,
          .min_curvature_sequences = session.one_loss_each() ? kLeastExamples : 1,
          .one_loss_each = session.one_loss_each()};
}

SnapshotCosts CostsAtCreate(ProbeSuite& suite, const MonitorOptions& options) {
  const QuantizationProbe& quantization = suite.quantization();
  const CapturePlan& plan = suite.session().plan();
  SnapshotCosts costs;
  costs.probe_batch = quantization.probe_batch_seconds();
  // Gram matrices that do not fit into memory together take several forward passes.
  const int64_t passes = std::max<int64_t>(1, std::ssize(plan.Passes(options.max_gram_bytes)));
  costs.calibration_batch = Real(passes) * quantization.calibration_batch_seconds();
  for (int64_t inputs : plan.gram_inputs) {
    costs.calibration_batch +=
        GramFlop(quantization.calibration_batch_tokens(), inputs) / kGramRate;
  }
  for (const QuantizerSpec& spec : options.quantizers) {
    for (const CoveredLayer& layer : plan.layers) {
      costs.quantize +=
          MethodOf(spec).flops(Real(layer.outputs), Real(layer.inputs), spec) / kQuantizeRate;
    }
  }
  if (suite.curvature() != nullptr) {
    costs.curvature_fixed = suite.curvature()->fixed_seconds();
    costs.curvature_sequence = suite.curvature()->sequence_seconds();
  }
  return costs;
}

}  // namespace

PlanModel PlanModelAtCreate(ProbeSuite& suite, const MonitorOptions& options) {
  return {.range = PlanRangeOf(suite, options), .costs = CostsAtCreate(suite, options)};
}

}  // namespace ptqwatch::internal
