#include "probes/merge_probe.h"

#include <algorithm>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "probes/layer_costs.h"

namespace ptqwatch::internal {
namespace {

// The cost of one merge under `quantizers`, from the cost of `all` of them and one full-precision
// loss; `alone` if `all` is 0.
ProbeCost CostOfMerge(const ProbeCost& quantization, size_t all, size_t quantizers, double alone,
                      int64_t merges) {
  const double n = static_cast<double>(all);
  const double merged = static_cast<double>(quantizers);
  return {.of_each = &Plan::merges,
          .most = merges,
          .fixed = all > 0 ? quantization.fixed * merged / n : alone,
          .probe_batch = quantization.probe_batch * (merged + 1) / (n + 1),
          .calibration_batch = quantization.calibration_batch};
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
      measurement_(session, quantization, recent),
      recent_(recent),
      cost_(CostOfMerge(
          quantization_cost, quantizers, measurement_.specs().size(),
          CountLayerCosts(session.plan(), measurement_.specs(), 0, RatesOn(session.device().device))
              .quantize,
          std::ssize(MergesOf(options.window)))) {}

ProbeNeeds MergeProbe::Needs(int64_t available) const {
  if (!disabled().empty()) return {.text = StrCat("merges: off, ", disabled(), "\n")};
  return {.text = StrCat("merges: ", cost_.most, " weighted averages of the same snapshots, that ",
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
  const auto* means = input.Earlier<AveragingResult>();
  const OwnLosses own = means != nullptr ? means->own : OwnLosses();
  for (const Merge& merge : merges) {
    const auto count = static_cast<size_t>(merge.snapshots);
    AveragingReport report;
    report.kind = AveragingKind::kMerge;
    report.shape = merge.shape;
    report.window = report.snapshots = merge.snapshots;
    report.first_step = recent_.window().first_step(count);
    measurement_.Measure(
        [&] { return recent_.window().WeightedSum(MergeWeights(merge.shape, count)); }, own, input,
        report, context);
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
