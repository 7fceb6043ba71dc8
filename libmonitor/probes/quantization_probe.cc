#include "probes/quantization_probe.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "capture/layer_selection.h"
#include "probes/loss_comparison.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {
namespace {

// Weights of a block, or of a group along the inputs.
int ReportedGroupSize(const QuantizerSpec& spec) {
  switch (spec.method) {
    case QuantizationMethod::kLlmInt8:
      return -1;
    case QuantizationMethod::kNf4:
      return 64;
    default:
      return spec.group_size;
  }
}

// The probe has failed where any quantizer has; the detail is that of the first that is not ok.
ProbeOutcome Summarise(const QuantizationResult& result) {
  using Kind = ProbeOutcome::Kind;
  ProbeOutcome outcome{std::string(QuantizationProbe::kName), OutcomeOf(result.status),
                       result.detail};
  for (const QuantizationReport& report : result.quantizers) {
    if (report.status == ProbeStatus::kOk) continue;
    if (outcome.kind == Kind::kOk) {
      outcome.kind = Kind::kIncomplete;
      outcome.detail =
          StrCat(ToString(report.method), " ", report.bits, "-bit: ", report.status_detail);
    }
    if (report.status == ProbeStatus::kFailed) outcome.kind = Kind::kFailed;
  }
  return outcome;
}

// The first `count`, or all where that is 0.
std::vector<Batch> FirstOf(const std::vector<Batch>& batches, int64_t count) {
  if (count <= 0 || count >= std::ssize(batches)) return batches;
  return {batches.begin(), batches.begin() + count};
}

}  // namespace

std::vector<LayerSpecs> SpecsOfLayers(const MonitorOptions& options, const CapturePlan& plan) {
  std::vector<LayerSpecs> quantizers;
  for (const QuantizerSpec& spec : options.quantizers) {
    LayerSpecs& specs = quantizers.emplace_back();
    for (const CoveredLayer& layer : plan.layers) {
      specs.push_back(SpecForLayer(options, spec, layer.name));
    }
  }
  return quantizers;
}

/// The layers of each quantizer as they come, which is in the order of the work.
class QuantizationProbe::Rows {
 public:
  Rows(const CapturePlan& plan, const std::vector<LayerSpecs>& specs)
      : plan_(plan), specs_(specs), rows_(specs.size(), std::vector<Row>(plan.layers.size())) {}

  void Add(size_t quantizer, size_t layer, MatrixView weight, const GramStatistics* statistics,
           const QuantizedWeight& result) {
    const CoveredLayer& covered = plan_.layers[layer];
    Row& row = rows_[quantizer][layer];
    LayerQuantization& report = row.report;
    report.name = covered.name;
    report.status = result.status;
    if (statistics != nullptr) {
      report.tokens = statistics->tokens;
      report.skipped_rows = statistics->skipped_rows;
    }
    report.dead_columns = result.dead_columns;
    if (specs_[quantizer][layer].method == QuantizationMethod::kGptq) report.damp = result.damp;
    if (result.output_energy.value_or(0) > 0) {
      if (result.loss) report.output_error_ratio = *result.loss / *result.output_energy;
      if (result.rtn_loss) report.rtn_output_error_ratio = *result.rtn_loss / *result.output_energy;
    }
    if (result.status == LayerStatus::kNonFinite) {
      row.nonfinite = StrCat("layer '", covered.name, "': ", result.status_detail);
    } else if (!result.dequantized.empty()) {  // else it stays in full precision
      row.matrix = at::empty({covered.outputs, covered.inputs}, at::kFloat);
      float* to = row.matrix.mutable_data_ptr<float>();
      for (size_t i = 0; i < result.dequantized.size(); ++i) {
        const double step = static_cast<double>(result.dequantized[i]) - weight.data[i];
        row.displacement += step * step;
        to[i] = result.dequantized[i];
      }
    }
  }

  // Moves the layers of one quantizer into its report, in the order of the plan, and returns the
  // weights.
  absl::StatusOr<std::vector<Replica::Override>> Take(size_t quantizer, int64_t all_parameters,
                                                      QuantizationReport& report) {
    std::vector<Replica::Override> weights;
    double displacement = 0;
    int64_t parameters = 0;
    std::string nonfinite;
    for (size_t layer = 0; layer < plan_.layers.size(); ++layer) {
      const CoveredLayer& covered = plan_.layers[layer];
      Row& row = rows_[quantizer][layer];
      report.layers.push_back(std::move(row.report));
      if (nonfinite.empty()) nonfinite = row.nonfinite;
      if (!row.matrix.defined()) continue;
      displacement += row.displacement;
      parameters += row.matrix.numel();
      weights.push_back({covered.entry, covered.AsStored(row.matrix)});
    }
    rows_[quantizer].clear();
    if (!nonfinite.empty()) return absl::DataLossError(nonfinite);
    report.displacement_norm = std::sqrt(displacement);
    report.coverage_ratio = static_cast<double>(parameters) / static_cast<double>(all_parameters);
    return weights;
  }

 private:
  struct Row {
    LayerQuantization report;
    std::string nonfinite;  // why there are no codes
    double displacement = 0;
    at::Tensor matrix;  // dequantized; undefined where the layer stays as it is
  };

  const CapturePlan& plan_;
  const std::vector<LayerSpecs>& specs_;
  std::vector<std::vector<Row>> rows_;  // [quantizer][layer]
};

QuantizationProbe::QuantizationProbe(ModelSession& session, const MonitorOptions& options)
    : session_(session), options_(options), specs_(SpecsOfLayers(options, session.plan())) {}

absl::StatusOr<std::unique_ptr<QuantizationProbe>> QuantizationProbe::Create(
    ModelSession& session, const MonitorOptions& options) {
  at::NoGradGuard no_grad;
  std::unique_ptr<QuantizationProbe> probe(new QuantizationProbe(session, options));
  Stopwatch watch(Clock::Real());
  PTQWATCH_ASSIGN_OR_RETURN(const LossValues losses, session.replica().Losses(session.probe()[0]));
  probe->probe_batch_seconds_ = watch.Lap();
  PTQWATCH_ASSIGN_OR_RETURN(const UnitLosses probe_units, SumByUnit(losses, session.probe()[0]));
  probe->probe_batch_units_ = std::max<int64_t>(1, std::ssize(probe_units.sum));
  watch.Lap();
  PTQWATCH_ASSIGN_OR_RETURN(const LossValues calibration,
                            session.replica().Losses(session.calibration()[0]));
  probe->calibration_batch_seconds_ = watch.Lap();
  PTQWATCH_ASSIGN_OR_RETURN(const UnitLosses units,
                            SumByUnit(calibration, session.calibration()[0]));
  probe->calibration_batch_tokens_ = units.tokens;
  return probe;
}

ModelQuantizer QuantizationProbe::Quantizer(const std::vector<Batch>& calibration) const {
  return {session_.replica(),
          session_.plan(),
          calibration,
          {.mode = options_.calibration_mode, .max_gram_bytes = options_.max_gram_bytes}};
}

ProbeResult QuantizationProbe::NotMeasured(ProbeStatus status, std::string detail) const {
  ProbeResult result;
  result.outcome = {std::string(kName), OutcomeOf(status), detail};
  result.value = QuantizationResult{.status = status, .detail = std::move(detail)};
  return result;
}

ProbeResult QuantizationProbe::Measure(const ProbeInput& input, const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  ProbeResult measured;
  QuantizationResult result;
  result.skipped_layers = session_.plan().skipped;
  result.calibration_mode = options_.calibration_mode;
  for (const QuantizerSpec& spec : options_.quantizers) {
    QuantizationReport& report = result.quantizers.emplace_back();
    report.method = spec.method;
    report.bits = spec.bits;
    report.group_size = ReportedGroupSize(spec);
    report.symmetric = spec.symmetric;
  }
  result.weights.resize(specs_.size());
  Stopwatch watch(context.clock);

  const auto& plan = input.place.plan;
  LossComparison comparison(session_, options_, plan ? plan->probe_batches : 0);
  const std::vector<Batch> calibration =
      FirstOf(session_.calibration(), plan ? plan->calibration_batches : 0);
  // The first batch tells whether there is anything to compare with.
  const absl::Status status = comparison.Evaluate(1);
  result.status = ProbeStatusOf(status);
  result.detail = StrCat(status);
  measured.cost_seconds["probe_loss"] = watch.Lap();

  Rows rows(session_.plan(), specs_);
  QuantizationRun run;
  run.quantizers.assign(specs_.size(), {.status = status});
  if (status.ok()) {
    run = Quantizer(calibration)
              .Run(
                  specs_,
                  [&](size_t quantizer, size_t layer, MatrixView weight,
                      const GramStatistics* statistics, const QuantizedWeight& quantized) {
                    rows.Add(quantizer, layer, weight, statistics, quantized);
                    input.callbacks.poll();
                  },
                  context);
  }
  if (run.captures > 0) measured.cost_seconds["capture"] = run.capture_seconds;
  watch.Lap();
  for (size_t i = 0; i < specs_.size(); ++i) {
    input.callbacks.poll();
    QuantizationReport& report = result.quantizers[i];
    absl::Status outcome = run.quantizers[i].status;
    if (outcome.ok()) {
      auto weights = rows.Take(i, session_.replica().table().parameters(), report);
      outcome = weights.status();
      if (weights.ok()) outcome = comparison.Compare(*weights, report, context);
      if (outcome.ok()) result.weights[i] = *std::move(weights);
    }
    if (!outcome.ok()) {
      report.displacement_norm.reset();
      report.status_detail = StrCat(outcome);
    }
    report.status = ProbeStatusOf(outcome);
    measured.cost_seconds[ShortName(ToString(report.method), report.bits)] +=
        run.quantizers[i].seconds + watch.Lap();
  }
  if (status.ok()) comparison.SumUp(result);
  measured.outcome = Summarise(result);
  measured.value = std::move(result);
  return measured;
}

std::string QuantizationProbe::DescribeCalibration() const {
  const ModelQuantizer quantizer = Quantizer(session_.calibration());
  const std::vector<Batch>& batches = session_.calibration();
  const bool one_shot = options_.calibration_mode == CalibrationMode::kOneShot;
  std::string text = StrFormat("calibration: %s, %d batches\n", ToString(options_.calibration_mode),
                               batches.size());
  const auto add = [&](int64_t passes, std::string_view whom) {
    if (passes == 0) return;
    text += StrCat("  ", passes, passes == 1 ? " pass" : " passes", " over them (",
                   passes * std::ssize(batches), " forward passes) for ", whom, "\n");
  };
  add(quantizer.SharedPasses(specs_),
      one_shot ? "all quantizers together" : "the layer errors of what needs no calibration");
  for (size_t i = 0; i < specs_.size(); ++i) {
    add(quantizer.OwnPasses(specs_[i]), ::ptqwatch::Describe(options_.quantizers[i]));
  }
  return text;
}

ProbeDescription QuantizationProbe::Describe() const {
  const CapturePlan& plan = session_.plan();
  const TensorTable& table = session_.replica().table();
  const double parameters = static_cast<double>(table.parameters());
  std::string text =
      StrFormat("%d of %d parameters are quantized (%.1f %%), %d layers with %d distinct inputs:\n",
                plan.covered_parameters, table.parameters(),
                100.0 * static_cast<double>(plan.covered_parameters) / parameters,
                plan.layers.size(), plan.gram_inputs.size());
  for (const CoveredLayer& layer : plan.layers) {
    text += StrFormat("  %-40s %d -> %d\n", layer.name, layer.inputs, layer.outputs);
  }
  text += "left in full precision:\n";
  for (const SkippedLayer& skipped : plan.skipped) {
    text += StrFormat("  %-40s %d parameters (%.1f %%): %s\n", skipped.name, skipped.parameters,
                      100.0 * static_cast<double>(skipped.parameters) / parameters, skipped.reason);
  }
  text += "quantizers:\n";
  for (const QuantizerSpec& spec : options_.quantizers) {
    text += StrCat("  ", ::ptqwatch::Describe(spec), "\n");
  }
  text += DescribeCalibration();
  int64_t grams = 0;
  for (const std::vector<int>& pass : plan.Passes(options_.max_gram_bytes)) {
    int64_t held = 0;
    for (int gram : pass) held += GramBytes(plan.gram_inputs[static_cast<size_t>(gram)]);
    grams = std::max(grams, held);
  }
  return {.text = std::move(text), .bytes = grams};
}

}  // namespace ptqwatch::internal
