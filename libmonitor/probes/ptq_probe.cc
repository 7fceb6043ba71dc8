#include "probes/ptq_probe.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "capture/layer_selection.h"
#include "probes/paired_loss.h"
#include "probes/probe_status.h"
#include "snapshot/finite.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {
namespace {

// A standard error from fewer units than this is not trusted to stop a probe.
constexpr size_t kLeastUnits = 16;

bool IsFinite(const UnitLosses& losses) {
  return std::all_of(losses.sum.begin(), losses.sum.end(),
                     [](double value) { return std::isfinite(value); });
}

// The full-precision loss on all batches that were needed.
void SumUp(const std::vector<UnitLosses>& batches, Report& report) {
  std::vector<double> sums;
  std::vector<double> weights;
  for (const UnitLosses& batch : batches) {
    sums.insert(sums.end(), batch.sum.begin(), batch.sum.end());
    weights.insert(weights.end(), batch.weight.begin(), batch.weight.end());
    report.probe_tokens += batch.tokens;
  }
  const RatioEstimate loss = EstimateRatio(sums, weights);
  report.probe_loss_nats = loss.value;
  if (std::isfinite(loss.stderr_value)) report.probe_loss_stderr_nats = loss.stderr_value;
}

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

/// Full-precision losses, evaluated batch by batch as they are first needed.
class PtqProbe::FullPrecision {
 public:
  const std::vector<UnitLosses>& batches() const { return batches_; }

  absl::Status Extend(Replica& replica, const std::vector<Batch>& probe, size_t count) {
    while (batches_.size() < count) {
      const Batch& batch = probe[batches_.size()];
      absl::StatusOr<LossValues> values = replica.Losses(batch);
      if (!values.ok()) return values.status();
      absl::StatusOr<UnitLosses> losses = SumByUnit(*values, batch);
      if (!losses.ok()) return losses.status();
      if (!IsFinite(*losses)) {
        const absl::Status finite = CheckFinite(replica.table());
        return absl::DataLossError(StrCat("the full-precision loss is not finite",
                                          finite.ok() ? "" : StrCat(": ", finite)));
      }
      batches_.push_back(*std::move(losses));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<UnitLosses> batches_;
};

/// Turns what comes out of the quantizer into the rows of the report and the weights to compare.
class PtqProbe::Results : public QuantizationListener {
 public:
  using Finish = std::function<absl::Status(size_t quantizer)>;
  /// `finish` runs for each quantizer that has all its layers, with `weights[quantizer]` filled.
  Results(const CapturePlan& plan, const std::vector<LayerSpecs>& specs, Replica& replica,
          Stopwatch& watch, Report& report, std::vector<std::vector<Replica::Override>>& weights,
          Finish finish)
      : plan_(plan),
        specs_(specs),
        replica_(replica),
        watch_(watch),
        report_(report),
        weights_(weights),
        finish_(std::move(finish)),
        rows_(specs.size(), std::vector<Row>(plan.layers.size())) {}

  void OnCaptured() override { report_.cost_seconds["capture"] += watch_.Lap(); }

  void OnLayer(size_t quantizer, size_t layer, MatrixView weight, const GramStatistics* statistics,
               QuantizedWeight result) override {
    const CoveredLayer& covered = plan_.layers[layer];
    Row& row = rows_[quantizer][layer];
    LayerQuantization& told = row.told;
    told.name = covered.name;
    told.status = result.status;
    if (statistics != nullptr) {
      told.tokens = statistics->tokens;
      told.skipped_rows = statistics->skipped_rows;
    }
    told.dead_columns = result.dead_columns;
    if (specs_[quantizer][layer].method == QuantizationMethod::kGptq) told.damp = result.damp;
    if (result.output_energy.value_or(0) > 0) {
      if (result.loss) told.output_error_ratio = *result.loss / *result.output_energy;
      if (result.rtn_loss) told.rtn_output_error_ratio = *result.rtn_loss / *result.output_energy;
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
    AddCost(quantizer);
  }

  void OnDone(size_t quantizer, const absl::Status& status) override {
    QuantizationReport& result = report_.quantization[quantizer];
    absl::Status outcome = status;
    if (outcome.ok()) outcome = Assemble(quantizer, result);
    if (outcome.ok()) outcome = finish_(quantizer);
    if (!outcome.ok()) {
      weights_[quantizer].clear();
      result.displacement_norm.reset();
      result.status_detail = std::string(outcome.message());
    }
    result.status = ProbeStatusOf(outcome);
    AddCost(quantizer);
  }

 private:
  struct Row {
    LayerQuantization told;
    std::string nonfinite;  // why there are no codes
    double displacement = 0;
    at::Tensor matrix;  // dequantized; undefined where the layer stays as it is
  };

  // Layers come in the order of the work; the report has that of the plan.
  absl::Status Assemble(size_t quantizer, QuantizationReport& result) {
    double displacement = 0;
    int64_t parameters = 0;
    std::string nonfinite;
    for (size_t layer = 0; layer < plan_.layers.size(); ++layer) {
      const CoveredLayer& covered = plan_.layers[layer];
      Row& row = rows_[quantizer][layer];
      result.layers.push_back(std::move(row.told));
      if (nonfinite.empty()) nonfinite = row.nonfinite;
      if (!row.matrix.defined()) continue;
      displacement += row.displacement;
      parameters += row.matrix.numel();
      weights_[quantizer].push_back({covered.entry, covered.AsStored(row.matrix)});
    }
    rows_[quantizer].clear();
    if (!nonfinite.empty()) return absl::DataLossError(nonfinite);
    result.displacement_norm = std::sqrt(displacement);
    result.coverage_ratio =
        static_cast<double>(parameters) / static_cast<double>(replica_.table().parameters());
    return absl::OkStatus();
  }

  void AddCost(size_t quantizer) {
    const QuantizationReport& result = report_.quantization[quantizer];
    report_.cost_seconds[ShortName(ToString(result.method), result.bits)] += watch_.Lap();
  }

  const CapturePlan& plan_;
  const std::vector<LayerSpecs>& specs_;
  Replica& replica_;
  Stopwatch& watch_;
  Report& report_;
  std::vector<std::vector<Replica::Override>>& weights_;
  const Finish finish_;
  std::vector<std::vector<Row>> rows_;  // [quantizer][layer]
};

absl::Status PtqProbe::Run(Replica& replica, Report& report,
                           std::vector<std::vector<Replica::Override>>& quantized,
                           const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  report.skipped_layers = plan_.skipped;
  report.calibration_mode = options_.calibration_mode;
  for (const QuantizerSpec& spec : options_.quantizers) {
    QuantizationReport& result = report.quantization.emplace_back();
    result.method = spec.method;
    result.bits = spec.bits;
    result.group_size = ReportedGroupSize(spec);
    result.symmetric = spec.symmetric;
  }
  Stopwatch watch(context.clock);

  FullPrecision full;
  // The first batch tells whether there is anything to compare with.
  const absl::Status status = full.Extend(replica, probe_, 1);
  report.cost_seconds["probe_loss"] = watch.Lap();

  quantized.assign(options_.quantizers.size(), {});
  const std::vector<LayerSpecs> specs = SpecsOfLayers(options_, plan_);
  Results results(plan_, specs, replica, watch, report, quantized, [&](size_t quantizer) {
    return Compare(replica, full, quantized[quantizer], report.quantization[quantizer], context);
  });
  if (status.ok()) {
    const ModelQuantizer quantizer(
        replica, plan_, calibration_,
        {.mode = options_.calibration_mode, .max_gram_bytes = options_.max_gram_bytes});
    quantizer.Run(specs, results, context);
    SumUp(full.batches(), report);
  } else {
    for (size_t i = 0; i < specs.size(); ++i) results.OnDone(i, status);
  }
  report.probe_status = ProbeStatusOf(status);
  report.probe_status_detail = std::string(status.message());
  return context.cancel.cancelled() ? absl::CancelledError("the monitor is being stopped")
                                    : absl::OkStatus();
}

absl::Status PtqProbe::Compare(Replica& replica, FullPrecision& full,
                               const std::vector<Replica::Override>& weights,
                               QuantizationReport& result, const ExecutionContext& context) const {
  std::vector<double> quantized_sum;
  std::vector<double> change;
  std::vector<double> full_sum;
  std::vector<double> weight;
  int64_t tokens = 0;
  RatioEstimate delta;
  for (size_t i = 0; i < probe_.size() && tokens < options_.max_probe_tokens; ++i) {
    if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
    if (absl::Status status = full.Extend(replica, probe_, i + 1); !status.ok()) return status;
    const UnitLosses& base = full.batches()[i];
    absl::StatusOr<UnitLosses> losses;
    {
      const absl::StatusOr<Replica::Lease> lease = replica.Use(weights);
      if (!lease.ok()) return lease.status();
      absl::StatusOr<LossValues> values = replica.Losses(probe_[i]);
      losses = values.ok() ? SumByUnit(*values, probe_[i]) : values.status();
    }
    if (!losses.ok()) return losses.status();
    if (!IsFinite(*losses)) return absl::DataLossError("the quantized loss is not finite");
    if (losses->weight != base.weight) {
      return absl::FailedPreconditionError(
          "losses gave other weights (or another number of sequences) for the same batch");
    }
    for (size_t unit = 0; unit < base.sum.size(); ++unit) {
      quantized_sum.push_back(losses->sum[unit]);
      change.push_back(losses->sum[unit] - base.sum[unit]);
      full_sum.push_back(base.sum[unit]);
      weight.push_back(base.weight[unit]);
    }
    tokens += base.tokens;
    delta = EstimateRatio(change, weight);
    if (change.size() >= kLeastUnits &&
        delta.stderr_value <= options_.relative_stderr * std::abs(delta.value)) {
      break;
    }
  }
  const RatioEstimate error = EstimateRatio(change, full_sum);
  if (!std::isfinite(delta.value)) {
    return absl::FailedPreconditionError("every probe token is masked out");
  }
  result.probe_tokens = tokens;
  result.loss_nats = EstimateRatio(quantized_sum, weight).value;
  result.delta_nats = delta.value;
  if (std::isfinite(delta.stderr_value)) result.delta_stderr_nats = delta.stderr_value;
  if (std::isfinite(error.value)) {
    result.error_ratio = error.value;
    if (std::isfinite(error.stderr_value)) result.error_ratio_stderr = error.stderr_value;
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
