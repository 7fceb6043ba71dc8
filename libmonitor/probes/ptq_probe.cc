#include "probes/ptq_probe.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/isfinite.h"
#include "probes/paired_loss.h"
#include "probes/probe_status.h"
#include "quantize/layer_selection.h"
#include "report/str_cat.h"

namespace ptqwatch::internal {
namespace {

// A standard error from fewer units than this is not trusted to stop a probe.
constexpr size_t kLeastUnits = 16;

bool IsFinite(const UnitLosses& losses) {
  return std::all_of(losses.sum.begin(), losses.sum.end(),
                     [](double value) { return std::isfinite(value); });
}

// "'blocks.0.qkv.weight' has 3 non-finite values", or empty.
std::string NonFiniteParameter(const Replica& replica) {
  for (const TensorEntry& entry : replica.table().entries) {
    if (!at::isFloatingType(entry.tensor.scalar_type())) continue;
    const int64_t finite = at::isfinite(entry.tensor).sum().item<int64_t>();
    if (finite != entry.tensor.numel()) {
      return StrCat("'", entry.name, "' has ", entry.tensor.numel() - finite, " non-finite values");
    }
  }
  return "";
}

// The weight as [outputs, inputs] float32 on the host.
at::Tensor AsMatrix(const at::Tensor& weight, bool transposed) {
  return (transposed ? weight.t() : weight)
      .to(at::TensorOptions().dtype(at::kFloat).device(at::kCPU))
      .contiguous();
}

}  // namespace

/// Full-precision losses, evaluated batch by batch as they are first needed.
struct PtqProbe::FullPrecision {
  std::vector<UnitLosses> batches;

  absl::Status Extend(Replica& replica, const std::vector<Batch>& probe, size_t count) {
    while (batches.size() < count) {
      const Batch& batch = probe[batches.size()];
      absl::StatusOr<LossValues> values = replica.Losses(batch);
      if (!values.ok()) return values.status();
      absl::StatusOr<UnitLosses> losses = SumByUnit(*values, batch);
      if (!losses.ok()) return losses.status();
      if (!IsFinite(*losses)) {
        const std::string parameter = NonFiniteParameter(replica);
        return absl::DataLossError(StrCat("the full-precision loss is not finite",
                                          parameter.empty() ? "" : StrCat(": ", parameter)));
      }
      batches.push_back(*std::move(losses));
    }
    return absl::OkStatus();
  }
};

absl::Status PtqProbe::Run(ExecutionContext& context, Replica& replica, Report& report,
                           std::vector<std::vector<Replica::Override>>& quantized) {
  at::NoGradGuard no_grad;
  report.skipped_layers = plan_.skipped;
  for (const QuantizerSpec& spec : options_.quantizers) {
    QuantizationReport& result = report.quantization.emplace_back();
    result.method = std::string(ToString(spec.method));
    result.bits = spec.bits;
    result.group_size = spec.group_size;
    result.symmetric = spec.symmetric;
  }
  Stopwatch watch(context.clock);

  FullPrecision full;
  // The first batch tells whether there is anything to compare with.
  absl::Status status = full.Extend(replica, probe_, 1);
  report.cost_seconds["probe_loss"] = watch.Lap();

  std::vector<GramStatistics> grams;
  absl::Status captured = status;
  if (status.ok()) {
    // RTN runs without statistics, but its layer error is measured with the same H wherever there
    // is one.
    absl::StatusOr<std::vector<GramStatistics>> result =
        CaptureGrams(context, replica, plan_, calibration_);
    if (result.ok()) {
      grams = *std::move(result);
    } else {
      captured = result.status();
    }
    report.cost_seconds["capture"] = watch.Lap();
  }
  quantized.assign(options_.quantizers.size(), {});
  for (size_t i = 0; i < options_.quantizers.size(); ++i) {
    QuantizationReport& result = report.quantization[i];
    absl::Status outcome = status;
    if (options_.quantizers[i].method == QuantizationMethod::kGptq) outcome = captured;
    if (outcome.ok()) {
      outcome = QuantizeAndCompare(context, replica, grams, options_.quantizers[i], full, result,
                                   quantized[i]);
    }
    if (!outcome.ok()) quantized[i].clear();
    result.status = ProbeStatusOf(outcome);
    if (!outcome.ok()) result.status_detail = std::string(outcome.message());
    report.cost_seconds[StrCat(result.method, result.bits)] += watch.Lap();
  }

  if (status.ok()) {
    std::vector<double> sums;
    std::vector<double> weights;
    for (const UnitLosses& batch : full.batches) {
      sums.insert(sums.end(), batch.sum.begin(), batch.sum.end());
      weights.insert(weights.end(), batch.weight.begin(), batch.weight.end());
      report.probe_tokens += batch.tokens;
    }
    const RatioEstimate loss = EstimateRatio(sums, weights);
    report.probe_loss_nats = loss.value;
    if (std::isfinite(loss.stderr_value)) report.probe_loss_stderr_nats = loss.stderr_value;
  }
  report.probe_status = ProbeStatusOf(status);
  report.probe_status_detail = std::string(status.message());
  return context.cancel.cancelled() ? absl::CancelledError("the monitor is being stopped")
                                    : absl::OkStatus();
}

absl::Status PtqProbe::QuantizeAndCompare(ExecutionContext& context, Replica& replica,
                                          const std::vector<GramStatistics>& grams,
                                          const QuantizerSpec& spec, FullPrecision& full,
                                          QuantizationReport& result,
                                          std::vector<Replica::Override>& weights) {
  double displacement = 0;
  int64_t quantized_parameters = 0;
  std::string nonfinite;
  for (const CoveredLayer& layer : plan_.layers) {
    if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
    const QuantizerSpec& layer_spec = SpecForLayer(options_, spec, layer.name);
    const at::Tensor weight = AsMatrix(replica.loaded(layer.entry), layer.transposed);
    const float* values = weight.const_data_ptr<float>();
    absl::StatusOr<QuantizedWeight> quantized =
        Quantize(context, {values, layer.outputs, layer.inputs},
                 grams.empty() ? nullptr : &grams[static_cast<size_t>(layer.gram)], layer_spec);
    if (!quantized.ok()) return quantized.status();

    LayerQuantization& row = result.layers.emplace_back();
    row.name = layer.name;
    row.status = std::string(ToString(quantized->status));
    if (!grams.empty()) row.tokens = grams[static_cast<size_t>(layer.gram)].tokens;
    if (layer_spec.method == QuantizationMethod::kGptq) row.damp = quantized->damp;
    if (quantized->output_energy.value_or(0) > 0) {
      if (quantized->loss) row.output_error_ratio = *quantized->loss / *quantized->output_energy;
      if (quantized->rtn_loss) {
        row.rtn_output_error_ratio = *quantized->rtn_loss / *quantized->output_energy;
      }
    }
    if (quantized->status == LayerStatus::kNonFinite) {
      if (nonfinite.empty()) {
        nonfinite = StrCat("layer '", layer.name, "': ", quantized->status_detail);
      }
      continue;
    }
    if (quantized->dequantized.empty()) continue;  // unsupported: stays in full precision

    at::Tensor replacement = at::empty({layer.outputs, layer.inputs}, at::kFloat);
    float* to = replacement.mutable_data_ptr<float>();
    for (size_t i = 0; i < quantized->dequantized.size(); ++i) {
      const double step = static_cast<double>(quantized->dequantized[i]) - values[i];
      displacement += step * step;
      to[i] = quantized->dequantized[i];
    }
    quantized_parameters += replacement.numel();
    weights.push_back({layer.entry, layer.transposed ? replacement.t() : replacement});
  }
  if (!nonfinite.empty()) return absl::DataLossError(nonfinite);
  result.displacement_norm = std::sqrt(displacement);
  result.coverage_ratio =
      static_cast<double>(quantized_parameters) / static_cast<double>(replica.table().parameters());
  absl::Status status = Compare(context, replica, full, weights, result);
  if (!status.ok()) result.displacement_norm.reset();
  return status;
}

absl::Status PtqProbe::Compare(ExecutionContext& context, Replica& replica, FullPrecision& full,
                               const std::vector<Replica::Override>& weights,
                               QuantizationReport& result) {
  std::vector<double> quantized_sum;
  std::vector<double> change;
  std::vector<double> full_sum;
  std::vector<double> weight;
  int64_t tokens = 0;
  RatioEstimate delta;
  for (size_t i = 0; i < probe_.size() && tokens < options_.max_probe_tokens; ++i) {
    if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
    if (absl::Status status = full.Extend(replica, probe_, i + 1); !status.ok()) return status;
    const UnitLosses& base = full.batches[i];
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
