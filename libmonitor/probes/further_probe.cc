#include "probes/further_probe.h"

#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/reservation.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "probes/layer_costs.h"
#include "probes/loss_comparison.h"
#include "probes/quantizer_report.h"
#include "report/pool_sets.h"
#include "report/watched_quantizer.h"

namespace ptqwatch::internal {
namespace {

std::vector<int64_t> OwnersOfSets(const WorkShare& share, size_t watched) {
  std::vector<int64_t> owners = {share.quantizers.at(watched)};
  owners.insert(owners.end(), share.further_sets.begin(), share.further_sets.end());
  return owners;
}

std::vector<size_t> OwnSets(const WorkShare& share) {
  std::vector<size_t> own;
  for (size_t i = 0; i < share.further_sets.size(); ++i) {
    if (share.Owns(share.further_sets[i])) own.push_back(i + 1);
  }
  return own;
}

void SetOutcome(ProbeStatus status, std::string detail, ProbeSet& set) {
  set.status = status;
  set.status_detail = std::move(detail);
}

}  // namespace

FurtherProbe::FurtherProbe(ModelSession& session, const MonitorOptions& options,
                           const WorkShare& share, const ProbeCost& quantization_cost,
                           size_t quantizers)
    : Probe({.name = kName, .uses = {"quantization"}}),
      session_(session),
      options_(QuantizationOptionsOf(options)),
      rank_(share.rank),
      watched_(WatchedQuantizer(options.quantizers).value_or(0)),
      owners_(OwnersOfSets(share, watched_)),
      own_(OwnSets(share)) {
  if (own_.empty()) return;
  QuantizationOptions alone = options_;
  alone.quantizers = {options_.quantizers.at(watched_)};
  measurement_.emplace(session, std::move(alone));
  // Two passes over the set and a share of quantizing, from the cost of all quantizers beside one
  // full-precision loss.
  const double n = static_cast<double>(quantizers);
  const double sets = static_cast<double>(own_.size());
  const double batches = static_cast<double>(session.further_probe().front().size());
  const double quantize = quantizers > 0 ? quantization_cost.fixed / n
                                         : CountLayerCosts(session.plan(), measurement_->specs(), 0,
                                                           RatesOn(session.device().device))
                                               .quantize;
  cost_ = {.of_each = &Plan::further_probe_sets,
           .most = std::ssize(own_),
           .fixed = quantize / sets + 2 * batches * quantization_cost.probe_batch / (n + 1),
           .calibration_batch = quantization_cost.calibration_batch / sets};
}

ProbeNeeds FurtherProbe::Needs(int64_t available) const {
  if (!disabled().empty()) return {.text = StrCat("further probe sets: off, ", disabled(), "\n")};
  ProbeNeeds needs{.text = StrCat("further probe sets: ", own_.size(), " of ", owners_.size() - 1,
                                  " are measured here, of ", session_.further_probe()[0].size(),
                                  " batches each, with ",
                                  ::ptqwatch::Describe(options_.quantizers[watched_]), "\n"),
                   .seconds = cost_};
  if (measurement_) needs.bytes = measurement_->PortionFor(available).bytes;
  return needs;
}

PooledLoss FurtherProbe::Bare() const {
  const QuantizationReport names = ReportOf(options_.quantizers[watched_]);
  PooledLoss pooled{.method = names.method, .bits = names.bits, .format = names.format};
  for (size_t i = 0; i < owners_.size(); ++i) {
    ProbeSet& set = pooled.sets.emplace_back();
    set.set = static_cast<int64_t>(i);
    SetOutcome(ProbeStatus::kOtherRank, OwnerDetail(owners_[i]), set);
  }
  return pooled;
}

ProbeResult FurtherProbe::ResultOf(PooledLoss pooled) const {
  ProbeResult result{.outcome = {std::string(kName)}};
  for (const size_t i : own_) {
    const ProbeSet& set = pooled.sets[i];
    if (result.outcome.kind != ProbeOutcome::Kind::kOk) break;
    result.outcome.kind = OutcomeOf(set.status);
    if (!set.status_detail.empty()) {
      result.outcome.detail = StrCat("further probe set ", i, ": ", set.status_detail);
    }
  }
  PoolSets(pooled);
  result.value = PooledResult{.report = std::move(pooled)};
  return result;
}

ProbeResult FurtherProbe::NotMeasured(ProbeStatus status, std::string detail) const {
  PooledLoss pooled = Bare();
  for (size_t i = 0; i < pooled.sets.size(); ++i) {
    if (owners_[i] == rank_) SetOutcome(status, detail, pooled.sets[i]);
  }
  ProbeResult result = ResultOf(std::move(pooled));
  result.outcome.kind = OutcomeOf(status);
  result.outcome.detail = StrCat("further probe sets: ", detail);
  return result;
}

ProbeSet FurtherProbe::MeasureSet(size_t set, const std::vector<Replica::Override>& weights,
                                  const ExecutionContext& context) const {
  LossComparison comparison(session_, session_.further_probe()[set - 1],
                            OnAllBatches(options_.comparison), /*max_batches=*/0);
  QuantizationReport ignored;
  const absl::Status status = comparison.Compare(weights, ignored, context);
  ProbeSet measured;
  if (status.ok()) measured = comparison.pairs().Sums();
  measured.set = static_cast<int64_t>(set);
  SetOutcome(ProbeStatusOf(status), StrCat(status), measured);
  return measured;
}

void FurtherProbe::MeasureOwn(const QuantizationResult& quantization, const ProbeInput& input,
                              PooledLoss& pooled, const ExecutionContext& context) const {
  Reservation held(context.bytes);
  absl::StatusOr<std::vector<Replica::Override>> quantized;
  const auto& kept = quantization.weights;
  const bool is_kept = watched_ < kept.size() && !kept[watched_].empty();
  if (!is_kept) quantized = measurement_->Quantize(input, held, context);
  for (const size_t i : own_) {
    input.poll();
    if (is_kept || quantized.ok()) {
      pooled.sets[i] = MeasureSet(i, is_kept ? kept[watched_] : *quantized, context);
    } else {
      SetOutcome(ProbeStatusOf(quantized.status()), StrCat(quantized.status()), pooled.sets[i]);
    }
  }
}

ProbeResult FurtherProbe::Measure(const ProbeInput& input, const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  Stopwatch watch(context.clock);
  const auto* quantization = input.Earlier<QuantizationResult>();
  if (quantization == nullptr) return NotMeasured(ProbeStatus::kDisabled, "no quantization");
  // Without a finite full-precision loss here, no other set has one.
  if (quantization->status != ProbeStatus::kOk) {
    ProbeResult result = NotMeasured(quantization->status, quantization->detail);
    result.outcome = {std::string(kName)};  // the quantization probe's outcome says so
    return result;
  }
  PooledLoss pooled = Bare();
  if (owners_[0] == rank_) {
    const QuantizationReport& report = quantization->quantizers.at(watched_);
    pooled.sets[0] = quantization->sums.at(watched_);
    SetOutcome(report.status, report.status_detail, pooled.sets[0]);
  }
  const auto& plan = input.place.plan;
  if (plan && plan->further_probe_sets == 0) {
    for (const size_t i : own_) {
      SetOutcome(ProbeStatus::kDisabled, "the plan has no time for it", pooled.sets[i]);
    }
  } else if (!own_.empty()) {
    MeasureOwn(*quantization, input, pooled, context);
  }
  ProbeResult result = ResultOf(std::move(pooled));
  result.cost_seconds[std::string(kName)] = watch.Lap();
  return result;
}

}  // namespace ptqwatch::internal
