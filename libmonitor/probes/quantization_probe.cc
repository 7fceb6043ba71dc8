#include "probes/quantization_probe.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "probes/layer_costs.h"
#include "probes/loss_comparison.h"
#include "probes/work_share.h"
#include "report/layer_groups.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {
namespace {

double Real(int64_t value) { return static_cast<double>(value); }

// The rows that the batch gives to a Gram matrix, about: the activations of masked tokens count
// too.
int64_t RowsFor(const LossValues& losses, const UnitLosses& units) {
  return losses.values.dim() == 2 ? losses.values.numel() : units.tokens;
}

// The probe fails if any quantizer fails; the detail comes from the first that is not ok.
ProbeOutcome Summarise(const QuantizationResult& result) {
  using Kind = ProbeOutcome::Kind;
  ProbeOutcome outcome{std::string(QuantizationProbe::kName), OutcomeOf(result.status),
                       result.detail};
  for (const QuantizationReport& report : result.quantizers) {
    if (report.status == ProbeStatus::kOk || report.status == ProbeStatus::kOtherRank) continue;
    if (outcome.kind == Kind::kOk) {
      outcome.kind = Kind::kIncomplete;
      outcome.detail = StrCat(ShortName(KeyOf(report)), ": ", report.status_detail);
    }
    if (report.status == ProbeStatus::kFailed) outcome.kind = Kind::kFailed;
  }
  return outcome;
}

}  // namespace

absl::StatusOr<std::unique_ptr<QuantizationProbe>> QuantizationProbe::Create(
    ModelSession& session, const QuantizationOptions& options) {
  at::NoGradGuard no_grad;
  std::unique_ptr<QuantizationProbe> probe(new QuantizationProbe(session, options));
  Stopwatch watch(Clock::Real());
  PTQWATCH_ASSIGN_OR_RETURN(const LossValues losses, session.replica().Losses(session.probe()[0]));
  session.Drain();
  probe->probe_batch_seconds_ = watch.Lap();
  PTQWATCH_ASSIGN_OR_RETURN(const UnitLosses probe_units, SumByUnit(losses, session.probe()[0]));
  probe->probe_batch_units_ = std::max<int64_t>(1, std::ssize(probe_units.sum));
  watch.Lap();
  PTQWATCH_ASSIGN_OR_RETURN(const LossValues calibration,
                            session.replica().Losses(session.calibration()[0]));
  session.Drain();
  probe->calibration_batch_seconds_ = watch.Lap();
  PTQWATCH_ASSIGN_OR_RETURN(const UnitLosses units,
                            SumByUnit(calibration, session.calibration()[0]));
  probe->calibration_batch_tokens_ = RowsFor(calibration, units);
  return probe;
}

ProbeResult QuantizationProbe::NotMeasured(ProbeStatus status, std::string detail) const {
  ProbeResult result;
  result.outcome = {std::string(kName), OutcomeOf(status), detail};
  QuantizationResult nothing = measurement_.NothingMeasured();
  for (const size_t quantizer : measurement_.quantizers()) {
    nothing.quantizers[quantizer].status = status;
    nothing.quantizers[quantizer].status_detail = detail;
  }
  nothing.status = status;
  nothing.detail = std::move(detail);
  result.value = std::move(nothing);
  return result;
}

ProbeResult QuantizationProbe::Measure(const ProbeInput& input, const ExecutionContext& context) {
  ProbeResult measured;
  QuantizationResult result = measurement_.Measure(input, measured.cost_seconds, context);
  measured.outcome = Summarise(result);
  measured.value = std::move(result);
  return measured;
}

ProbeCost QuantizationProbe::Cost() const {
  const CapturePlan& plan = session_.plan();
  // If the Gram matrices do not fit into memory together, they take several forward passes.
  const int64_t passes = std::max<int64_t>(1, std::ssize(plan.Passes(options().max_gram_bytes)));
  int64_t compared = 0;
  for (size_t i = 0; i < options().quantizers.size(); ++i) compared += options().Owns(i) ? 1 : 0;
  ProbeCost cost{.probe_batch = Real(compared + 1) * probe_batch_seconds_,
                 .calibration_batch = Real(passes) * calibration_batch_seconds_};
  const LayerCosts layers = CountLayerCosts(plan, measurement_.specs(), calibration_batch_tokens_,
                                            RatesOn(session_.device().device));
  cost.calibration_batch += layers.gram_batch;
  cost.fixed += layers.quantize;
  if (measurement_.quantizers().empty()) cost.calibration_batch = 0;
  return cost;
}

std::string QuantizationProbe::DescribeCalibration(int64_t gram_bytes) const {
  const ModelQuantizer quantizer = measurement_.Quantizer(session_.calibration(), gram_bytes);
  const std::vector<Batch>& batches = session_.calibration();
  const std::vector<LayerSpecs>& specs = measurement_.specs();
  const bool one_shot = options().calibration_mode == CalibrationMode::kOneShot;
  std::string text = StrFormat("calibration: %s, %d batches\n",
                               ToString(options().calibration_mode), batches.size());
  const auto add = [&](int64_t passes, std::string_view whom) {
    if (passes == 0) return;
    text += StrCat("  ", passes, passes == 1 ? " pass" : " passes", " over them (",
                   passes * std::ssize(batches), " forward passes) for ", whom, "\n");
  };
  add(quantizer.SharedPasses(specs),
      one_shot ? "all quantizers together" : "the layer errors of quantizers without calibration");
  for (size_t i = 0; i < specs.size(); ++i) {
    const size_t index = measurement_.quantizers()[i];
    add(quantizer.OwnPasses(specs[i]), ::ptqwatch::Describe(options().quantizers[index]));
  }
  return text;
}

std::string QuantizationProbe::DescribeUnits() const {
  if (!session_.mean_losses()) return "";
  return StrCat("losses: one mean a batch, so that error bars come from ", session_.probe().size(),
                session_.probe().size() == 1 ? " number" : " numbers",
                ", the means of the probe batches or of pieces of them. Fewer than ",
                LossComparison::kMinUnits,
                " never end a measurement early, and one gives no error bar. Return the loss of "
                "each example, sequence or token for tighter ones\n");
}

ProbeNeeds QuantizationProbe::Needs(int64_t available) const {
  const CapturePlan& plan = session_.plan();
  const std::vector<LayerSpecs>& specs = measurement_.specs();
  const TensorTable& table = session_.replica().table();
  const double parameters = static_cast<double>(table.parameters());
  std::string text =
      StrFormat("%d of %d parameters are quantized (%.1f %%), %d layers with %d distinct inputs:\n",
                plan.covered_parameters, table.parameters(),
                100.0 * static_cast<double>(plan.covered_parameters) / parameters,
                plan.layers.size(), plan.gram_inputs.size());
  const auto name_of = [&](size_t i) { return std::string_view(plan.layers[i].name); };
  for (const GroupedLayers& group : GroupLayers(plan.layers.size(), name_of)) {
    const CoveredLayer& layer = plan.layers[group.members[0]];
    text += StrFormat("  %-40s %d -> %d%s\n", group.name, layer.inputs, layer.outputs,
                      group.stacked() ? StrCat(", ", group.members.size(), " of them") : "");
  }
  text += "left in full precision:\n";
  int64_t vectors = 0;
  int64_t in_vectors = 0;
  for (const SkippedLayer& skipped : plan.skipped) {
    if (skipped.reason != kNotAMatrix) continue;
    ++vectors;
    in_vectors += skipped.parameters;
  }
  for (const SkippedLayer& skipped : GroupSkipped(plan.skipped)) {
    if (skipped.reason == kNotAMatrix) continue;
    text += StrFormat("  %-40s %d parameters (%.1f %%): %s\n", skipped.name, skipped.parameters,
                      100.0 * static_cast<double>(skipped.parameters) / parameters, skipped.reason);
  }
  if (vectors > 0) {
    text += StrFormat("  %-40s %d parameters (%.1f %%)\n", StrCat(vectors, " norms and biases"),
                      in_vectors, 100.0 * static_cast<double>(in_vectors) / parameters);
  }
  text += DescribeUnits();
  text += "quantizers:\n";
  for (size_t i = 0; i < options().quantizers.size(); ++i) {
    text += StrCat("  ", ::ptqwatch::Describe(options().quantizers[i]),
                   options().Owns(i) ? "" : StrCat(": ", OwnerDetail(options().owners[i])), "\n");
  }
  const QuantizationMeasurement::Portion portion = measurement_.PortionFor(available);
  text += DescribeCalibration(portion.gram_bytes);
  const bool all = portion.quantizers == specs.size();
  if (!all) {
    text += StrCat("  ", portion.quantizers, " of ", specs.size(),
                   " quantizers at a time, for lack of memory\n");
  }
  return {.text = std::move(text),
          .bytes = portion.bytes,
          .kept_bytes = all ? static_cast<int64_t>(specs.size()) * measurement_.WeightBytes() : 0,
          .seconds = Cost()};
}

}  // namespace ptqwatch::internal
