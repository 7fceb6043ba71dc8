#include "probes/merge_probe.h"

#include <algorithm>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "probes/layer_costs.h"

namespace ptqwatch::internal {
namespace {

// The share of one quantizer, from the cost of all of them beside one full-precision loss; `alone`
// if there are none of them.
ProbeCost CostOfMerge(const ProbeCost& quantization, size_t quantizers, double alone) {
  const double n = static_cast<double>(quantizers);
  return {.per_merge = true,
          .fixed = quantizers > 0 ? quantization.fixed / n : alone,
          .probe_batch = 2 * quantization.probe_batch / (n + 1),
          .calibration_batch = quantization.calibration_batch};
}

// A comparison that takes all batches of its plan, so that all merges are measured on the same
// tokens.
QuantizationOptions OnAllBatches(QuantizationOptions options) {
  options.comparison.relative_stderr = -1;
  options.comparison.absolute_stderr_ratio = -1;
  return options;
}

// The number of the first probe batches that have this many tokens together. `losses` are those of
// the first batches; later ones are taken to be as long as the last of them.
int64_t BatchesOf(int64_t tokens, const std::vector<UnitLosses>& losses) {
  int64_t batches = 0;
  int64_t of_last = 0;
  for (const UnitLosses& batch : losses) {
    if (tokens <= 0) break;
    of_last = batch.tokens;
    tokens -= of_last;
    ++batches;
  }
  return tokens > 0 && of_last > 0 ? batches + (tokens + of_last - 1) / of_last : batches;
}

// The snapshot's place with a plan of the probe batches on which its mean was measured.
SnapshotPlace OnTokensOfMean(const ProbeInput& input) {
  SnapshotPlace place = input.place;
  const auto* means = input.Earlier<AveragingResult>();
  const auto* quantization = input.Earlier<QuantizationResult>();
  if (means == nullptr || means->averages.empty() || quantization == nullptr) return place;
  const int64_t batches = BatchesOf(means->averages[0].probe_tokens, quantization->losses);
  if (batches == 0) return place;
  if (!place.plan) place.plan.emplace();
  place.plan->probe_batches = batches;
  return place;
}

}  // namespace

MergeProbe::MergeProbe(ModelSession& session, const AveragingOptions& options,
                       const QuantizationOptions& quantization, const ProbeCost& quantization_cost,
                       size_t quantizers, const RecentWeights& recent)
    : Probe({.name = kName,
             .uses = {"quantization", "averaging"},
             .uses_recent_weights = true,
             .with_curvature = true}),
      options_(options),
      measurement_(session, OnAllBatches(quantization), recent),
      recent_(recent),
      cost_(CostOfMerge(quantization_cost, quantizers,
                        CountLayerCosts(session.plan(), measurement_.specs(), 0).quantize)) {}

ProbeNeeds MergeProbe::Needs(int64_t available) const {
  if (!disabled().empty()) return {.text = StrCat("merges: off, ", disabled(), "\n")};
  return {.text = StrCat("merges: ", most(), " weighted averages of the same snapshots, that ",
                         "emulate decays; as many of them as there is time for\n"),
          .bytes = measurement_.Bytes(available),
          .seconds = cost_};
}

ProbeResult MergeProbe::NotMeasured(ProbeStatus status, std::string detail) const {
  AveragingReport report;
  report.kind = AveragingKind::kMerge;
  report.window = options_.window;
  report.status = status;
  report.status_detail = detail;
  ProbeResult result;
  result.outcome = {std::string(kName), OutcomeOf(status), StrCat("merges: ", detail)};
  result.value = AveragingResult{.averages = {std::move(report)}};
  return result;
}

ProbeResult MergeProbe::Measure(const ProbeInput& input, const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  Stopwatch watch(context.clock);
  ProbeResult measured{.outcome = {std::string(kName)}};
  // At other snapshots the merges are those of the report before.
  if (!recent_.window().EndsAt(input.place.step)) return measured;
  std::vector<Merge> merges = MergesOf(static_cast<int64_t>(recent_.window().size()));
  if (merges.empty()) return measured;
  const auto& plan = input.place.plan;
  if (plan) merges.resize(std::min(merges.size(), static_cast<size_t>(plan->merges)));
  if (merges.empty()) {
    measured.value = NotMeasured(ProbeStatus::kDisabled, "the plan has no time for merges").value;
    return measured;
  }
  AveragingResult result;
  const SnapshotPlace place = OnTokensOfMean(input);
  const ProbeInput on_tokens_of_mean{.place = place,
                                     .optimizer = input.optimizer,
                                     .state = input.state,
                                     .poll = input.poll,
                                     .earlier = input.earlier,
                                     .keep_quantized = false};
  for (const Merge& merge : merges) {
    const auto count = static_cast<size_t>(merge.snapshots);
    AveragingReport report;
    report.kind = AveragingKind::kMerge;
    report.shape = merge.shape;
    report.window = report.snapshots = merge.snapshots;
    report.first_step = recent_.window().first_step(count);
    measurement_.Measure(
        [&] { return recent_.window().WeightedSum(MergeWeights(merge.shape, count)); },
        on_tokens_of_mean, report, context);
    if (OutcomeOf(report.status) != ProbeOutcome::Kind::kOk) {
      measured.outcome = {std::string(kName), OutcomeOf(report.status),
                          StrCat("merges: ", report.status_detail)};
    }
    result.averages.push_back(std::move(report));
  }
  measured.cost_seconds[std::string(kName)] = watch.Lap();
  measured.value = std::move(result);
  return measured;
}

}  // namespace ptqwatch::internal
