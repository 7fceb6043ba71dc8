#include "probes/loss_comparison.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "session/curvature_batches.h"
#include "snapshot/batches.h"
#include "snapshot/finite.h"

namespace ptqwatch::internal {
namespace {

// Fills in `routing` if it has a value.
absl::StatusOr<UnitLosses> LossesOf(Replica& replica, const Batch& batch,
                                    std::optional<ExpertRouting>& routing) {
  std::optional<RoutingWatcher> watcher;
  if (routing) watcher.emplace(replica.table());
  PTQWATCH_ASSIGN_OR_RETURN(const LossValues values, replica.Losses(batch));
  if (watcher) routing = watcher->Take();
  return SumByUnit(values, batch);
}

absl::StatusOr<UnitLosses> QuantizedLosses(Replica& replica, const Batch& batch,
                                           const std::vector<Replica::Override>& weights,
                                           std::optional<ExpertRouting>& routing) {
  PTQWATCH_ASSIGN_OR_RETURN(const Replica::Lease lease, replica.Use(weights));
  return LossesOf(replica, batch, routing);
}

std::optional<ExpertRouting> NewRouting(bool routed) {
  return routed ? std::optional<ExpertRouting>(std::in_place) : std::nullopt;
}

bool PreciseEnough(const LossPairs& pairs, const ComparisonOptions& options) {
  if (pairs.units() < LossComparison::kMinUnits) return false;
  const RatioEstimate delta = pairs.Change();
  const double loss = pairs.FullLoss().value;
  return delta.stderr_value <= std::max(options.relative_stderr * std::abs(delta.value),
                                        options.absolute_stderr_ratio * std::abs(loss));
}

}  // namespace

ComparisonOptions ComparisonOptionsOf(const MonitorOptions& options) {
  return {.relative_stderr = options.relative_stderr,
          .absolute_stderr_ratio = options.absolute_stderr_ratio,
          .max_probe_tokens = options.max_probe_tokens};
}

ComparisonOptions OnAllBatches(ComparisonOptions options) {
  options.relative_stderr = -1;
  options.absolute_stderr_ratio = -1;
  return options;
}

LossComparison::LossComparison(ModelSession& session, const std::vector<Batch>& batches,
                               const ComparisonOptions& options, int64_t max_batches,
                               std::vector<UnitLosses> evaluated)
    : session_(session),
      batches_(batches),
      options_(options),
      max_batches_(max_batches > 0 ? std::min(static_cast<size_t>(max_batches), batches.size())
                                   : batches.size()),
      routed_(session.plan().routed && evaluated.empty()),
      full_(std::move(evaluated)) {}

absl::Status LossComparison::Evaluate(size_t batches) {
  while (full_.size() < batches) {
    std::optional<ExpertRouting> routing = NewRouting(routed_);
    absl::StatusOr<UnitLosses> evaluated =
        LossesOf(session_.replica(), batches_[full_.size()], routing);
    if (!evaluated.ok()) return OfBatch("probe", full_.size(), evaluated.status());
    UnitLosses losses = *std::move(evaluated);
    if (!IsFinite(losses)) {
      const absl::Status weights = CheckFinite(session_.replica().table());
      return absl::DataLossError(StrCat("the full-precision loss is not finite",
                                        weights.ok() ? "" : StrCat(": ", weights)));
    }
    full_.push_back(std::move(losses));
    if (routing) routings_.push_back(*std::move(routing));
  }
  return absl::OkStatus();
}

absl::Status LossComparison::Compare(const std::vector<Replica::Override>& weights,
                                     QuantizationReport& report, const ExecutionContext& context,
                                     size_t exactly) {
  pairs_ = {};
  int64_t tokens = 0;
  quantized_.clear();
  RoutingChange routing_change;
  const size_t batches = exactly > 0 ? std::min(exactly, max_batches_) : max_batches_;
  for (size_t i = 0; i < batches && tokens < options_.max_probe_tokens; ++i) {
    PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    PTQWATCH_RETURN_IF_ERROR(Evaluate(i + 1));
    std::optional<ExpertRouting> routing = NewRouting(routed_);
    PTQWATCH_ASSIGN_OR_RETURN(UnitLosses losses,
                              QuantizedLosses(session_.replica(), batches_[i], weights, routing));
    if (routing) routing_change.Add(routings_[i], *routing);
    PTQWATCH_RETURN_IF_ERROR(pairs_.Add(full_[i], losses));
    tokens += full_[i].tokens;
    quantized_.push_back(std::move(losses));
    if (exactly == 0 && PreciseEnough(pairs_, options_)) break;
  }
  report.routing_change_ratio = routing_change.ratio();
  return pairs_.FillIn(report);
}

void LossComparison::SumUp(QuantizationResult& result) const {
  internal::SumUp(full_, result);
  if (session_.one_loss_each()) {
    const auto evaluated = batches_.begin() + std::ssize(full_);
    result.examples = CountSequences({batches_.begin(), evaluated});
  }
  result.losses = full_;
}

}  // namespace ptqwatch::internal
