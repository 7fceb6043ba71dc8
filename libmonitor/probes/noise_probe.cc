#include "probes/noise_probe.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/reservation.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "probes/weight_noise.h"
#include "probes/work_share.h"

namespace ptqwatch::internal {

absl::StatusOr<std::unique_ptr<NoiseProbe>> NoiseProbe::Create(ModelSession& session,
                                                               double relative_norm,
                                                               uint64_t seed) {
  std::unique_ptr<NoiseProbe> probe(new NoiseProbe(session, relative_norm, seed));
  PTQWATCH_RETURN_IF_ERROR(probe->TimeOnce());
  return probe;
}

absl::Status NoiseProbe::TimeOnce() {
  at::NoGradGuard no_grad;
  Stopwatch watch(Clock::Real());
  PTQWATCH_RETURN_IF_ERROR(session_.replica().Losses(session_.probe()[0]).status());
  session_.Drain();
  batch_seconds_ = watch.Lap();
  const CapturePlan& plan = session_.plan();
  const CoveredLayer& layer = plan.layers[0];
  const at::Tensor weight = session_.replica().loaded(layer.entry);
  watch.Lap();
  PTQWATCH_RETURN_IF_ERROR(
      NoisyWeight(weight, relative_norm_, layer.name, 0, ExecutionContext()).status());
  draw_seconds_ = watch.Lap() * static_cast<double>(plan.covered_parameters) /
                  static_cast<double>(std::max<int64_t>(1, weight.numel()));
  return absl::OkStatus();
}

int64_t NoiseProbe::LargestLayer() const {
  int64_t most = 0;
  for (const CoveredLayer& layer : session_.plan().layers) {
    most = std::max(most, layer.outputs * layer.inputs);
  }
  return most;
}

ProbeNeeds NoiseProbe::Needs(int64_t /*available*/) const {
  if (!disabled().empty()) return {.text = StrCat("noise: off, ", disabled(), "\n")};
  const NoisePlan plan(session_.probe().size());
  return {.text = StrCat("noise: of relative norm ", relative_norm_, " in the quantized weights, ",
                         plan.draws, " draws\n"),
          .bytes = NoiseBytes(LargestLayer()),
          .seconds = {.fixed = static_cast<double>(plan.draws) * draw_seconds_,
                      .probe_batch = batch_seconds_ * static_cast<double>(plan.evaluations) /
                                     static_cast<double>(plan.batches)}};
}

ProbeResult NoiseProbe::NotMeasured(ProbeStatus status, std::string detail) const {
  ProbeResult result;
  result.outcome = {std::string(kName), OutcomeOf(status), StrCat("noise: ", detail)};
  result.value = NoiseResult{.report = {.status = status,
                                        .status_detail = std::move(detail),
                                        .relative_norm = relative_norm_}};
  return result;
}

absl::StatusOr<std::vector<UnitLosses>> NoiseProbe::NoisyLosses(
    size_t batches, absl::Span<const ExpertRouting> routings, RoutingChange& change,
    const ProbeInput& input, const ExecutionContext& context) {
  ExecutionContext seeded = context;
  seeded.seeds = SeedSource(seed_);
  Reservation held(context.bytes);
  PTQWATCH_RETURN_IF_ERROR(held.Take(NoiseBytes(LargestLayer()), "noise in a layer"));
  Replica& replica = session_.replica();
  const NoisePlan plan(batches);
  std::vector<UnitLosses> losses(plan.evaluations);
  for (size_t draw = 0; draw < plan.draws; ++draw) {
    PTQWATCH_ASSIGN_OR_RETURN(Replica::Lease lease, replica.Use({}));
    for (const CoveredLayer& layer : session_.plan().layers) {
      input.poll();
      PTQWATCH_ASSIGN_OR_RETURN(
          at::Tensor noisy,
          NoisyWeight(replica.loaded(layer.entry), relative_norm_, layer.name, draw, seeded));
      lease.Write({layer.entry, std::move(noisy)});
    }
    for (size_t e = draw; e < plan.evaluations; e += plan.draws) {
      input.poll();
      PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
      const Batch& batch = session_.probe()[e % batches];
      std::optional<RoutingWatcher> watcher;
      if (!routings.empty()) watcher.emplace(replica.table());
      PTQWATCH_ASSIGN_OR_RETURN(const LossValues values, replica.Losses(batch));
      if (watcher) change.Add(routings[e % batches], watcher->Take());
      PTQWATCH_ASSIGN_OR_RETURN(losses[e], SumByUnit(values, batch));
    }
  }
  return losses;
}

ProbeResult NoiseProbe::Measure(const ProbeInput& input, const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  Stopwatch watch(context.clock);
  ProbeResult measured{.outcome = {std::string(kName)}};
  const auto* quantization = input.Earlier<QuantizationResult>();
  // That result says why there is no loss to compare with.
  if (quantization == nullptr || quantization->losses.empty()) return measured;
  // Which batches the other quantizers were compared on depends on the rank.
  const size_t finest = FinestQuantizer(quantization->quantizers);
  const size_t batches = std::max<size_t>(1, quantization->quantized.at(finest).size());
  const auto full = absl::MakeConstSpan(quantization->losses).first(batches);
  RoutingChange change;
  const absl::StatusOr<std::vector<UnitLosses>> noisy =
      NoisyLosses(full.size(), quantization->routings, change, input, context);
  if (noisy.ok()) {
    NoiseReport report = CompareNoise(relative_norm_, full, *noisy);
    if (report.status == ProbeStatus::kOk) report.routing_change_ratio = change.ratio();
    measured.outcome.kind = OutcomeOf(report.status);
    measured.outcome.detail = report.status_detail;
    measured.value = NoiseResult{.report = std::move(report)};
  } else {
    measured = NotMeasured(ProbeStatusOf(noisy.status()), StrCat(noisy.status()));
  }
  measured.cost_seconds[std::string(kName)] = watch.Lap();
  return measured;
}

}  // namespace ptqwatch::internal
