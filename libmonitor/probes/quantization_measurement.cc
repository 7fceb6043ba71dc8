#include "probes/quantization_measurement.h"

#include <algorithm>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "capture/layer_selection.h"
#include "probes/quantizer_report.h"
#include "probes/work_share.h"
#include "quantize/methods.h"

namespace ptqwatch::internal {
namespace {

// The first `count` batches; all if `count` is 0.
std::vector<Batch> FirstOf(const std::vector<Batch>& batches, int64_t count) {
  if (count <= 0 || count >= std::ssize(batches)) return batches;
  return {batches.begin(), batches.begin() + count};
}

std::vector<size_t> QuantizersHere(const QuantizationOptions& options) {
  std::vector<size_t> here;
  for (size_t i = 0; i < options.quantizers.size(); ++i) {
    if (options.Owns(i)) here.push_back(i);
  }
  return here;
}

std::vector<LayerSpecs> SpecsOfLayers(const QuantizationOptions& options,
                                      const std::vector<size_t>& quantizers,
                                      const CapturePlan& plan) {
  std::vector<LayerSpecs> all;
  for (const size_t quantizer : quantizers) {
    LayerSpecs& specs = all.emplace_back();
    for (const CoveredLayer& layer : plan.layers) {
      specs.push_back(SpecForLayer(options.overrides, options.quantizers[quantizer], layer.name));
    }
  }
  return all;
}

BackendNeeds NeedsOf(const CapturePlan& plan, const std::vector<LayerSpecs>& quantizers,
                     int64_t max_gram_bytes) {
  BackendNeeds needs;
  int64_t most = -1;
  for (const std::vector<int>& pass : plan.Passes(max_gram_bytes)) {
    if (plan.GramBytesOf(pass) <= most) continue;
    most = plan.GramBytesOf(pass);
    needs.gram_inputs.clear();
    for (int gram : pass) {
      needs.gram_inputs.push_back(plan.gram_inputs[static_cast<size_t>(gram)]);
    }
  }
  for (const LayerSpecs& specs : quantizers) {
    for (size_t layer = 0; layer < specs.size(); ++layer) {
      needs.layers.push_back({plan.layers[layer].outputs, plan.layers[layer].inputs, specs[layer]});
    }
  }
  return needs;
}

}  // namespace

QuantizationOptions QuantizationOptionsOf(const MonitorOptions& options) {
  return {.quantizers = options.quantizers,
          .overrides = options.overrides,
          .calibration_mode = options.calibration_mode,
          .max_gram_bytes = options.max_gram_bytes,
          .comparison = ComparisonOptionsOf(options)};
}

QuantizationMeasurement::QuantizationMeasurement(ModelSession& session, QuantizationOptions options)
    : session_(session),
      options_(std::move(options)),
      quantizers_(QuantizersHere(options_)),
      specs_(SpecsOfLayers(options_, quantizers_, session.plan())) {
  session.Backend(NeedsOf(session.plan(), specs_, options_.max_gram_bytes));
}

ModelQuantizer QuantizationMeasurement::Quantizer(const std::vector<Batch>& calibration,
                                                  int64_t gram_bytes) const {
  return {session_.replica(),
          session_.plan(),
          calibration,
          session_.Backend(),
          {.mode = options_.calibration_mode,
           .max_gram_bytes = gram_bytes,
           .stored_sizes = options_.artifact_size}};
}

int64_t QuantizationMeasurement::LayerBytes() const {
  int64_t most = 0;
  for (const LayerSpecs& specs : specs_) {
    for (size_t layer = 0; layer < specs.size(); ++layer) {
      const CoveredLayer& covered = session_.plan().layers[layer];
      most = std::max(most, WorkingBytes(covered.outputs, covered.inputs, specs[layer]));
    }
  }
  return most;
}

QuantizationMeasurement::Portion QuantizationMeasurement::PortionFor(int64_t available) const {
  const CapturePlan& plan = session_.plan();
  int64_t least_gram = 0;
  for (int64_t inputs : plan.gram_inputs) least_gram = std::max(least_gram, GramBytes(inputs));
  int64_t working = 0;
  int64_t peak = 0;  // for the work on one layer
  for (const LayerSpecs& specs : specs_) {
    for (size_t layer = 0; layer < specs.size(); ++layer) {
      const CoveredLayer& covered = plan.layers[layer];
      // The result becomes one of the copies counted with the quantizers.
      const int64_t reserved = WorkingBytes(covered.outputs, covered.inputs, specs[layer]) -
                               4 * covered.outputs * covered.inputs;
      working = std::max(working, reserved);
      const int64_t panels = TracePanelBytes(covered.outputs, covered.inputs);
      peak = std::max({peak, panels, reserved - panels});
    }
  }
  Portion portion;
  portion.quantizers = specs_.size();
  const auto fixed = [&] {
    return static_cast<int64_t>(portion.quantizers) * WeightBytes() + working;
  };
  while (portion.quantizers > 1 && fixed() + least_gram > available) --portion.quantizers;
  const int64_t for_grams = std::max(least_gram, available - fixed());
  portion.gram_bytes = std::min(options_.max_gram_bytes, for_grams);
  int64_t grams = 0;
  for (const std::vector<int>& pass : plan.Passes(portion.gram_bytes)) {
    grams = std::max(grams, plan.GramBytesOf(pass));
  }
  portion.bytes = specs_.empty() ? 0 : fixed() - working + peak + grams;
  return portion;
}

QuantizationResult QuantizationMeasurement::NothingMeasured() const {
  QuantizationResult result;
  result.skipped_layers = session_.plan().skipped;
  result.unseen = session_.plan().Unseen();
  result.calibration_mode = options_.calibration_mode;
  for (size_t i = 0; i < options_.quantizers.size(); ++i) {
    QuantizationReport& report = result.quantizers.emplace_back(ReportOf(options_.quantizers[i]));
    if (options_.Owns(i)) continue;
    report.status = ProbeStatus::kOtherRank;
    report.status_detail = OwnerDetail(options_.owners[i]);
  }
  result.weights.resize(options_.quantizers.size());
  result.quantized.resize(options_.quantizers.size());
  result.sums.resize(options_.quantizers.size());
  return result;
}

QuantizationResult QuantizationMeasurement::Measure(const ProbeInput& input,
                                                    std::map<std::string, double>& cost_seconds,
                                                    const ExecutionContext& context,
                                                    const std::vector<size_t>& batches) const {
  at::NoGradGuard no_grad;
  QuantizationResult result = NothingMeasured();
  Stopwatch watch(context.clock);

  const auto& plan = input.place.plan;
  LossComparison comparison(session_, options_.comparison, plan ? plan->probe_batches : 0);
  // The first batch shows whether there is a finite loss to compare with.
  const absl::Status status = comparison.Evaluate(1);
  result.status = ProbeStatusOf(status);
  result.detail = StrCat(status);
  cost_seconds["probe_loss"] = watch.Lap();
  if (status.ok()) {
    const Portion portion = PortionFor(context.bytes->remaining());
    for (size_t first = 0; first < specs_.size(); first += portion.quantizers) {
      const size_t count = std::min(portion.quantizers, specs_.size() - first);
      MeasurePart({.first = first,
                   .count = count,
                   .gram_bytes = portion.gram_bytes,
                   .whole = count == specs_.size(),
                   .batches = batches},
                  input, comparison, result, cost_seconds, context);
    }
    comparison.SumUp(result);
    result.routings = comparison.routings();
  } else {
    for (const size_t quantizer : quantizers_) SetStatus(status, result.quantizers[quantizer]);
  }
  return result;
}

QuantizationRun QuantizationMeasurement::Run(const std::vector<LayerSpecs>& specs,
                                             int64_t gram_bytes, const ProbeInput& input,
                                             QuantizedLayers& layers,
                                             const ExecutionContext& context) const {
  const auto& plan = input.place.plan;
  const std::vector<Batch> calibration =
      FirstOf(session_.calibration(), plan ? plan->calibration_batches : 0);
  return Quantizer(calibration, gram_bytes)
      .Run(
          specs,
          [&](size_t quantizer, size_t layer, const LayerGram* gram, QuantizedMatrix quantized) {
            layers.Add(quantizer, layer, gram, std::move(quantized));
            input.poll();
          },
          context);
}

absl::StatusOr<std::vector<Replica::Override>> QuantizationMeasurement::Quantize(
    const ProbeInput& input, Reservation& held, const ExecutionContext& context) const {
  const int64_t gram_bytes = PortionFor(context.bytes->remaining()).gram_bytes;
  PTQWATCH_RETURN_IF_ERROR(held.Take(WeightBytes(), "the quantized weights"));
  const std::vector<LayerSpecs> specs = {specs_.at(0)};
  QuantizedLayers layers(session_.plan(), specs);
  const QuantizationRun run = Run(specs, gram_bytes, input, layers, context);
  PTQWATCH_RETURN_IF_ERROR(run.quantizers.at(0).status);
  QuantizationReport ignored;
  return layers.Take(0, session_.replica().table().parameters(), ignored);
}

void QuantizationMeasurement::MeasurePart(const Part& part, const ProbeInput& input,
                                          LossComparison& comparison, QuantizationResult& result,
                                          std::map<std::string, double>& cost_seconds,
                                          const ExecutionContext& context) const {
  Stopwatch watch(context.clock);
  const auto begin = specs_.begin() + static_cast<std::ptrdiff_t>(part.first);
  const std::vector<LayerSpecs> specs(begin, begin + static_cast<std::ptrdiff_t>(part.count));
  QuantizedLayers layers(session_.plan(), specs);
  QuantizationRun run;
  run.quantizers.resize(specs.size());
  auto held = std::make_shared<Reservation>(context.bytes);
  const absl::Status fits =
      held->Take(static_cast<int64_t>(specs.size()) * WeightBytes(), "the quantized weights");
  if (fits.ok()) {
    run = Run(specs, part.gram_bytes, input, layers, context);
  }
  if (run.captures > 0) cost_seconds["capture"] += run.capture_seconds;
  watch.Lap();
  // Later quantizers need the memory more than curvature along these errors does.
  const bool keep = input.keep_quantized && part.whole;
  for (size_t i = 0; i < part.count; ++i) {
    input.poll();
    const size_t quantizer = quantizers_[part.first + i];
    QuantizationReport& report = result.quantizers[quantizer];
    absl::Status outcome = fits.ok() ? run.quantizers[i].status : fits;
    if (outcome.ok()) {
      const std::vector<bool> fallen = layers.FallenBack(i);
      auto weights = layers.Take(i, session_.replica().table().parameters(), report);
      outcome = weights.status();
      if (weights.ok()) {
        const size_t exactly = quantizer < part.batches.size() ? part.batches[quantizer] : 0;
        outcome = comparison.Compare(*weights, report, context, exactly);
        result.quantized[quantizer] = comparison.TakeQuantized();
        result.sums[quantizer] = comparison.pairs().Sums();
        report.fallback_tokens_ratio =
            FallbackShare(session_.replica().table(), session_.plan(), comparison.routings(),
                          [&](size_t layer) { return fallen[layer]; });
      }
      if (outcome.ok() && keep) result.weights[quantizer] = *std::move(weights);
    }
    SetStatus(outcome, report);
    if (outcome.ok() && input.keep_quantized && !keep) {
      report.status_detail = StrCat("no curvature along its error: weights of ", quantizers_.size(),
                                    " quantizers do not fit within max_bytes");
    }
    cost_seconds[ShortName(KeyOf(report))] += run.quantizers[i].seconds + watch.Lap();
  }
  if (keep) result.held = std::move(held);
}

}  // namespace ptqwatch::internal
