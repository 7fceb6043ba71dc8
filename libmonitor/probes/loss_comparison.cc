#include "probes/loss_comparison.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "probes/paired_loss.h"
#include "session/curvature_batches.h"
#include "snapshot/batches.h"
#include "snapshot/finite.h"

namespace ptqwatch::internal {
namespace {

bool IsFinite(const UnitLosses& losses) {
  return std::all_of(losses.sum.begin(), losses.sum.end(),
                     [](double value) { return std::isfinite(value); });
}

absl::StatusOr<UnitLosses> LossesOf(Replica& replica, const Batch& batch) {
  PTQWATCH_ASSIGN_OR_RETURN(const LossValues values, replica.Losses(batch));
  return SumByUnit(values, batch);
}

absl::StatusOr<UnitLosses> QuantizedLosses(Replica& replica, const Batch& batch,
                                           const std::vector<Replica::Override>& weights) {
  PTQWATCH_ASSIGN_OR_RETURN(const Replica::Lease lease, replica.Use(weights));
  return LossesOf(replica, batch);
}

// The losses of the same units, without and with quantization.
struct Pairs {
  std::vector<double> quantized;
  std::vector<double> change;
  std::vector<double> full;
  std::vector<double> weight;
  // Number of examples by unit; empty if it is unknown which are correct.
  std::vector<double> examples;
  std::vector<double> right;  // correct with quantization
  std::vector<double> lost;   // correct without quantization minus `right`
  std::vector<double> wrong;  // wrong without quantization

  absl::Status Add(const UnitLosses& base, const UnitLosses& losses) {
    if (!IsFinite(losses)) return absl::DataLossError("the quantized loss is not finite");
    if (losses.weight != base.weight) {
      return absl::FailedPreconditionError(
          "losses gave different weights (or numbers of sequences) for the same batch");
    }
    if (losses.examples != base.examples) {
      return absl::FailedPreconditionError(
          "losses gave LossValues::correct for different examples of the same batch");
    }
    for (size_t unit = 0; unit < base.examples.size(); ++unit) {
      examples.push_back(base.examples[unit]);
      right.push_back(losses.correct[unit]);
      lost.push_back(base.correct[unit] - losses.correct[unit]);
      wrong.push_back(base.examples[unit] - base.correct[unit]);
    }
    for (size_t unit = 0; unit < base.sum.size(); ++unit) {
      quantized.push_back(losses.sum[unit]);
      change.push_back(losses.sum[unit] - base.sum[unit]);
      full.push_back(base.sum[unit]);
      weight.push_back(base.weight[unit]);
    }
    return absl::OkStatus();
  }
};

bool PreciseEnough(const Pairs& pairs, const RatioEstimate& delta,
                   const ComparisonOptions& options) {
  if (pairs.change.size() < LossComparison::kMinUnits) return false;
  const double loss = EstimateRatio(pairs.full, pairs.weight).value;
  return delta.stderr_value <= std::max(options.relative_stderr * std::abs(delta.value),
                                        options.absolute_stderr_ratio * std::abs(loss));
}

void SetFinite(const RatioEstimate& estimate, std::optional<double>& value,
               std::optional<double>& stderr_value) {
  if (!std::isfinite(estimate.value)) return;
  value = estimate.value;
  if (std::isfinite(estimate.stderr_value)) stderr_value = estimate.stderr_value;
}

// Unit i has n_i examples, c_i of them correct, q_i correct with quantization. The degradation is
//   (Acc(W) - Acc(W_hat)) / (1 - Acc(W)) = sum(c_i - q_i) / sum(n_i - c_i),
// a ratio of sums over the same units. EstimateRatio linearizes it (the delta method; Cochran,
// Sampling Techniques, eq. 6.13), so errors common to numerator and denominator cancel.
void FillAccuracy(const Pairs& pairs, QuantizationReport& report) {
  std::optional<double> ignored;
  SetFinite(EstimateRatio(pairs.right, pairs.examples), report.accuracy_ratio, ignored);
  SetFinite(EstimateRatio(pairs.lost, pairs.wrong), report.accuracy_degradation_ratio,
            report.accuracy_degradation_stderr);
}

}  // namespace

ComparisonOptions ComparisonOptionsOf(const MonitorOptions& options) {
  return {.relative_stderr = options.relative_stderr,
          .absolute_stderr_ratio = options.absolute_stderr_ratio,
          .max_probe_tokens = options.max_probe_tokens};
}

LossComparison::LossComparison(ModelSession& session, const ComparisonOptions& options,
                               int64_t max_batches, std::vector<UnitLosses> evaluated)
    : session_(session),
      options_(options),
      max_batches_(max_batches > 0
                       ? std::min(static_cast<size_t>(max_batches), session.probe().size())
                       : session.probe().size()),
      full_(std::move(evaluated)) {}

absl::Status LossComparison::Evaluate(size_t batches) {
  while (full_.size() < batches) {
    absl::StatusOr<UnitLosses> evaluated =
        LossesOf(session_.replica(), session_.probe()[full_.size()]);
    if (!evaluated.ok()) return OfBatch("probe", full_.size(), evaluated.status());
    UnitLosses losses = *std::move(evaluated);
    if (!IsFinite(losses)) {
      const absl::Status weights = CheckFinite(session_.replica().table());
      return absl::DataLossError(StrCat("the full-precision loss is not finite",
                                        weights.ok() ? "" : StrCat(": ", weights)));
    }
    full_.push_back(std::move(losses));
  }
  return absl::OkStatus();
}

absl::Status LossComparison::Compare(const std::vector<Replica::Override>& weights,
                                     QuantizationReport& report, const ExecutionContext& context) {
  Pairs pairs;
  int64_t tokens = 0;
  RatioEstimate delta;
  for (size_t i = 0; i < max_batches_ && tokens < options_.max_probe_tokens; ++i) {
    PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    PTQWATCH_RETURN_IF_ERROR(Evaluate(i + 1));
    PTQWATCH_ASSIGN_OR_RETURN(const UnitLosses losses,
                              QuantizedLosses(session_.replica(), session_.probe()[i], weights));
    PTQWATCH_RETURN_IF_ERROR(pairs.Add(full_[i], losses));
    tokens += full_[i].tokens;
    delta = EstimateRatio(pairs.change, pairs.weight);
    if (PreciseEnough(pairs, delta, options_)) break;
  }
  const RatioEstimate error = EstimateRatio(pairs.change, pairs.full);
  if (!std::isfinite(delta.value)) {
    return absl::FailedPreconditionError("every probe token is masked out");
  }
  report.probe_tokens = tokens;
  report.loss_nats = EstimateRatio(pairs.quantized, pairs.weight).value;
  report.delta_nats = delta.value;
  if (std::isfinite(delta.stderr_value)) report.delta_stderr_nats = delta.stderr_value;
  SetFinite(error, report.error_ratio, report.error_ratio_stderr);
  FillAccuracy(pairs, report);
  return absl::OkStatus();
}

void LossComparison::SumUp(QuantizationResult& result) const {
  std::vector<double> sums;
  std::vector<double> weights;
  std::vector<double> right;
  std::vector<double> examples;
  const auto append = [](const std::vector<double>& more, std::vector<double>& all) {
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const UnitLosses& batch : full_) {
    append(batch.sum, sums);
    append(batch.weight, weights);
    append(batch.correct, right);
    append(batch.examples, examples);
    result.tokens += batch.tokens;
  }
  if (session_.one_loss_each()) {
    const auto& probe = session_.probe();
    const auto evaluated = probe.begin() + std::ssize(full_);
    result.examples = CountSequences({probe.begin(), evaluated});
  }
  const RatioEstimate loss = EstimateRatio(sums, weights);
  result.loss_nats = loss.value;
  if (std::isfinite(loss.stderr_value)) result.loss_stderr_nats = loss.stderr_value;
  SetFinite(EstimateRatio(right, examples), result.accuracy_ratio, result.accuracy_stderr);
  result.losses = full_;
}

}  // namespace ptqwatch::internal
