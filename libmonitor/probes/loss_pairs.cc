#include "probes/loss_pairs.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace ptqwatch::internal {

bool IsFinite(const UnitLosses& losses) {
  return std::all_of(losses.sum.begin(), losses.sum.end(),
                     [](double value) { return std::isfinite(value); });
}

absl::Status LossPairs::Add(const UnitLosses& full, const UnitLosses& quantized) {
  if (!IsFinite(quantized)) return absl::DataLossError("the quantized loss is not finite");
  if (quantized.weight != full.weight) {
    return absl::FailedPreconditionError(
        "losses gave different weights (or numbers of sequences) for the same batch");
  }
  if (quantized.examples != full.examples) {
    return absl::FailedPreconditionError(
        "losses gave LossValues::correct for different examples of the same batch");
  }
  for (size_t unit = 0; unit < full.examples.size(); ++unit) {
    examples_.push_back(full.examples[unit]);
    right_.push_back(quantized.correct[unit]);
    lost_.push_back(full.correct[unit] - quantized.correct[unit]);
    wrong_.push_back(full.examples[unit] - full.correct[unit]);
  }
  for (size_t unit = 0; unit < full.sum.size(); ++unit) {
    quantized_.push_back(quantized.sum[unit]);
    change_.push_back(quantized.sum[unit] - full.sum[unit]);
    full_.push_back(full.sum[unit]);
    weight_.push_back(full.weight[unit]);
  }
  tokens_ += full.tokens;
  return absl::OkStatus();
}

// Unit i has n_i examples, c_i of them correct, q_i correct with quantization. The degradation is
//   (Acc(W) - Acc(W_hat)) / (1 - Acc(W)) = sum(c_i - q_i) / sum(n_i - c_i),
// a ratio of sums over the same units. EstimateRatio linearizes it (the delta method; Cochran,
// Sampling Techniques, eq. 6.13), so errors common to numerator and denominator cancel.
absl::Status LossPairs::FillIn(QuantizationReport& report) const {
  const RatioEstimate delta = Change();
  if (!std::isfinite(delta.value)) {
    return absl::FailedPreconditionError("every probe token is masked out");
  }
  report.probe_tokens = tokens_;
  report.loss_nats = EstimateRatio(quantized_, weight_).value;
  report.delta_nats = delta.value;
  if (std::isfinite(delta.stderr_value)) report.delta_stderr_nats = delta.stderr_value;
  SetIfFinite(EstimateRatio(change_, full_), report.error_ratio, report.error_ratio_stderr);
  std::optional<double> ignored;
  SetIfFinite(EstimateRatio(right_, examples_), report.accuracy_ratio, ignored);
  SetIfFinite(EstimateRatio(lost_, wrong_), report.accuracy_degradation_ratio,
              report.accuracy_degradation_stderr);
  return absl::OkStatus();
}

std::optional<RatioEstimate> ChangeOf(absl::Span<const UnitLosses> before,
                                      absl::Span<const UnitLosses> after) {
  LossPairs pairs;
  for (size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    if (!pairs.Add(before[i], after[i]).ok()) return std::nullopt;
  }
  const RatioEstimate change = pairs.Change();
  return std::isfinite(change.value) ? std::optional(change) : std::nullopt;
}

ProbeSet LossPairs::Sums() const {
  ProbeSet sums{.units = static_cast<int64_t>(units()), .tokens = tokens_};
  for (size_t unit = 0; unit < units(); ++unit) {
    const double x = change_[unit];
    const double z = full_[unit];
    const double y = weight_[unit];
    sums.change += x;
    sums.loss += z;
    sums.weight += y;
    sums.change_squared += x * x;
    sums.loss_squared += z * z;
    sums.weight_squared += y * y;
    sums.change_by_loss += x * z;
    sums.change_by_weight += x * y;
  }
  return sums;
}

void SumUp(absl::Span<const UnitLosses> batches, QuantizationResult& result) {
  std::vector<double> sums;
  std::vector<double> weights;
  std::vector<double> right;
  std::vector<double> examples;
  const auto append = [](const std::vector<double>& more, std::vector<double>& all) {
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const UnitLosses& batch : batches) {
    append(batch.sum, sums);
    append(batch.weight, weights);
    append(batch.correct, right);
    append(batch.examples, examples);
    result.tokens += batch.tokens;
  }
  const RatioEstimate loss = EstimateRatio(sums, weights);
  result.loss_nats = loss.value;
  if (std::isfinite(loss.stderr_value)) result.loss_stderr_nats = loss.stderr_value;
  SetIfFinite(EstimateRatio(right, examples), result.accuracy_ratio, result.accuracy_stderr);
}

}  // namespace ptqwatch::internal
