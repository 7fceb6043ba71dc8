#include "probes/mixed_precision_probe.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "probes/prediction_check.h"
#include "report/watched_quantizer.h"

namespace ptqwatch::internal {
namespace {

using Weights = std::vector<Replica::Override>;

// Each layer's share of the predicted loss change, by name.
std::map<std::string_view, double> SharesOf(const ErrorCurvature& error) {
  std::map<std::string_view, double> shares;
  for (const ErrorCurvature::Layer& layer : error.layers) {
    shares[layer.name] = layer.gradient_term_nats + layer.curvature_term_nats;
  }
  return shares;
}

const Replica::Override* Find(const Weights& weights, int entry) {
  const auto found =
      std::find_if(weights.begin(), weights.end(),
                   [entry](const Replica::Override& weight) { return weight.entry == entry; });
  return found == weights.end() ? nullptr : &*found;
}

// The layers that both quantizers quantized and that are in the curvature's scope.
std::vector<RaisableLayer> Candidates(const Replica& replica, const Weights& low,
                                      const Weights& raised, const ErrorCurvature& low_error,
                                      const ErrorCurvature& raised_error) {
  const auto low_shares = SharesOf(low_error);
  const auto raised_shares = SharesOf(raised_error);
  std::vector<RaisableLayer> layers;
  for (const Replica::Override& weight : low) {
    const std::string& name = replica.name(weight.entry);
    const auto now = low_shares.find(name);
    const auto then = raised_shares.find(name);
    if (now == low_shares.end() || then == raised_shares.end()) continue;
    if (Find(raised, weight.entry) == nullptr) continue;
    layers.push_back({name, weight.entry, weight.value.numel(), now->second - then->second});
  }
  return layers;
}

}  // namespace

std::optional<BitPair> ChooseBitPair(absl::Span<const QuantizerSpec> quantizers) {
  const std::optional<size_t> watched = WatchedQuantizer(quantizers);
  if (!watched) return std::nullopt;
  // The first entry with the fewest bits greater than `above`.
  const auto fewest = [&](int above) {
    std::optional<size_t> best;
    for (size_t i = 0; i < quantizers.size(); ++i) {
      if (quantizers[i].bits <= above || quantizers[i].method != quantizers[*watched].method ||
          FormatOf(quantizers[i]) != FormatOf(quantizers[*watched])) {
        continue;
      }
      if (!best || quantizers[i].bits < quantizers[*best].bits) best = i;
    }
    return best;
  };
  const std::optional<size_t> low = fewest(0);
  const std::optional<size_t> raised = fewest(quantizers[*low].bits);
  if (!raised) return std::nullopt;
  return BitPair{*low, *raised};
}

std::vector<RaisableLayer> RankLayers(std::vector<RaisableLayer> layers) {
  std::erase_if(layers, [](const RaisableLayer& layer) {
    return !(layer.saving_nats > 0) || layer.added_bits <= 0;
  });
  const auto worth = [](const RaisableLayer& layer) {
    return layer.saving_nats / static_cast<double>(layer.parameters * layer.added_bits);
  };
  std::stable_sort(
      layers.begin(), layers.end(),
      [&](const RaisableLayer& a, const RaisableLayer& b) { return worth(a) > worth(b); });
  return layers;
}

std::vector<size_t> MixtureSizes(size_t layers, size_t ranked) {
  const size_t most = std::min(ranked, std::max<size_t>(1, layers / 4));
  std::vector<size_t> sizes;
  for (const size_t size : {(most + 3) / 4, (most + 1) / 2, most}) {
    if (size > 0 && (sizes.empty() || size > sizes.back())) sizes.push_back(size);
  }
  return sizes;
}

std::unique_ptr<MixedPrecisionProbe> MixedPrecisionProbe::Create(
    ModelSession& session, const std::vector<QuantizerSpec>& quantizers,
    const SpecOverrides& overrides, const ComparisonOptions& comparison) {
  const std::optional<BitPair> pair = ChooseBitPair(quantizers);
  if (!pair) return nullptr;
  return std::unique_ptr<MixedPrecisionProbe>(
      new MixedPrecisionProbe(session, quantizers, overrides, comparison, *pair));
}

MixedPrecisionReport MixedPrecisionProbe::HeaderOf(const QuantizerSpec& low,
                                                   const QuantizerSpec& raised) {
  MixedPrecisionReport report;
  report.method = low.method;
  report.bits = low.bits;
  report.raised_bits = raised.bits;
  const std::string format = FormatOf(low);
  if (format != FormatOf(low.method)) report.format = format;
  return report;
}

ProbeNeeds MixedPrecisionProbe::Needs(int64_t /*available*/) const {
  if (!disabled().empty()) return {.text = StrCat("mixed precision: off, ", disabled(), "\n")};
  const MixedPrecisionReport header = Header();
  return {.text = StrCat("mixed precision: ", ToString(header.method), " with ", header.bits,
                         " bits, and the worst layers with ", header.raised_bits,
                         ", chosen by curvature\n")};
}

ProbeResult MixedPrecisionProbe::NotMeasured(ProbeStatus status, std::string detail) const {
  MixedPrecisionReport report = Header();
  report.status = status;
  report.status_detail = detail;
  ProbeResult result;
  result.outcome = {std::string(kName), OutcomeOf(status), StrCat("mixed precision: ", detail)};
  result.value = MixedPrecisionResult{.mixtures = {std::move(report)}};
  return result;
}

ProbeResult MixedPrecisionProbe::Measure(const ProbeInput& input, const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  Stopwatch watch(context.clock);
  ProbeResult measured{.outcome = {std::string(kName)}, .value = MixedPrecisionResult()};
  const auto* quantization = input.Earlier<QuantizationResult>();
  const auto* curvature = input.Earlier<CurvatureResult>();
  // The results of those probes say why they are missing.
  if (quantization == nullptr || curvature == nullptr ||
      curvature->report.status != ProbeStatus::kOk) {
    return measured;
  }
  for (const size_t quantizer : {pair_.low, pair_.raised}) {
    const QuantizationReport& report = quantization->quantizers.at(quantizer);
    if (report.status != ProbeStatus::kOk) return measured;
    if (!quantization->weights.at(quantizer).empty()) continue;
    // The probe works, but this snapshot leaves it no memory.
    ProbeResult without = NotMeasured(ProbeStatus::kDisabled, report.status_detail);
    without.outcome = measured.outcome;
    return without;
  }
  if (const auto& error = curvature->errors.at(pair_.low)) {
    const std::string problem = PredictionProblem(*error, quantization->quantizers.at(pair_.low));
    if (!problem.empty()) {
      ProbeResult withheld = NotMeasured(
          ProbeStatus::kDisabled, StrCat("no layers are chosen at this snapshot: ", problem));
      withheld.outcome = measured.outcome;
      return withheld;
    }
  }
  MixedPrecisionResult result;
  const absl::Status status =
      Guard([&] { return MeasureMixtures(input, *quantization, *curvature, result, context); });
  if (!status.ok()) {
    measured = NotMeasured(ProbeStatusOf(status), StrCat(status));
  } else {
    measured.value = std::move(result);
  }
  measured.cost_seconds[std::string(kName)] = watch.Lap();
  return measured;
}

absl::Status MixedPrecisionProbe::MeasureMixtures(const ProbeInput& input,
                                                  const QuantizationResult& quantization,
                                                  const CurvatureResult& curvature,
                                                  MixedPrecisionResult& result,
                                                  const ExecutionContext& context) const {
  const std::optional<ErrorCurvature>& low_error = curvature.errors.at(pair_.low);
  const std::optional<ErrorCurvature>& raised_error = curvature.errors.at(pair_.raised);
  if (!low_error || !raised_error) return absl::OkStatus();
  const Weights& low = quantization.weights[pair_.low];
  const Weights& raised = quantization.weights[pair_.raised];
  std::vector<RaisableLayer> ranked =
      Candidates(session_.replica(), low, raised, *low_error, *raised_error);
  for (RaisableLayer& layer : ranked) {
    layer.added_bits = BitsOf(raised_, layer.entry) - BitsOf(low_, layer.entry);
  }
  ranked = RankLayers(std::move(ranked));
  double all_parameters = 0;
  double low_bits = 0;
  for (const Replica::Override& weight : low) {
    const auto parameters = static_cast<double>(weight.value.numel());
    all_parameters += parameters;
    low_bits += parameters * BitsOf(low_, weight.entry);
  }

  const auto& plan = input.place.plan;
  LossComparison comparison(session_, comparison_, plan ? plan->probe_batches : 0,
                            quantization.losses);
  for (const size_t size : MixtureSizes(low.size(), ranked.size())) {
    input.poll();
    MixedPrecisionReport& report = result.mixtures.emplace_back(Header());
    Weights mixture = low;
    double predicted = low_error->predicted_delta_nats;
    double added_bits = 0;
    for (size_t i = 0; i < size; ++i) {
      const RaisableLayer& layer = ranked[i];
      report.raised_layers.push_back(layer.name);
      predicted -= layer.saving_nats;
      added_bits += static_cast<double>(layer.parameters * layer.added_bits);
      for (Replica::Override& weight : mixture) {
        if (weight.entry == layer.entry) weight.value = Find(raised, layer.entry)->value;
      }
    }
    report.mean_bits = low_bits / all_parameters + added_bits / all_parameters;
    report.predicted_delta_nats = predicted;
    QuantizationReport compared;
    const absl::Status status = comparison.Compare(mixture, compared, context);
    report.status = ProbeStatusOf(status);
    // A mixture whose loss is not finite does not affect the others.
    if (!status.ok() && !absl::IsDataLoss(status)) return status;
    report.status_detail = StrCat(status);
    report.delta_nats = compared.delta_nats;
    report.delta_stderr_nats = compared.delta_stderr_nats;
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
