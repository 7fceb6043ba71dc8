#include "streamed/compare_losses.h"

#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "probes/paired_loss.h"

namespace ptqwatch::internal {
namespace {

// The sums of all sequences, of all batches.
struct SequenceSums {
  std::vector<double> loss = {};
  std::vector<double> weight = {};
  int64_t tokens = 0;
};

SequenceSums JoinBatches(absl::Span<const UnitLosses> batches) {
  SequenceSums all;
  for (const UnitLosses& batch : batches) {
    all.loss.insert(all.loss.end(), batch.sum.begin(), batch.sum.end());
    all.weight.insert(all.weight.end(), batch.weight.begin(), batch.weight.end());
    all.tokens += batch.tokens;
  }
  return all;
}

PairedDifference DifferenceOf(const RatioTerms& first, const RatioTerms& second) {
  PairedDifference difference;
  SetIfFinite(EstimateDifference(first, second), difference.value, difference.stderr_value);
  return difference;
}

// The losses of a model's sequences with a quantizer, and their changes.
struct QuantizedSums {
  std::vector<double> loss = {};
  std::vector<double> change = {};
};

absl::StatusOr<QuantizedSums> SumsUnder(absl::Span<const UnitLosses> batches,
                                        const SequenceSums& full) {
  SequenceSums sums = JoinBatches(batches);
  if (sums.weight != full.weight) {
    return absl::FailedPreconditionError("a quantizer has losses of other sequences");
  }
  QuantizedSums quantized{.loss = std::move(sums.loss)};
  for (size_t i = 0; i < full.loss.size(); ++i) {
    quantized.change.push_back(quantized.loss[i] - full.loss[i]);
  }
  return quantized;
}

}  // namespace

absl::StatusOr<LossesDifference> CompareLosses(const CheckpointLosses& first,
                                               const CheckpointLosses& second) {
  const SequenceSums before = JoinBatches(first.full);
  const SequenceSums after = JoinBatches(second.full);
  if (before.weight != after.weight) {
    return absl::FailedPreconditionError("the two models have losses of other sequences");
  }
  if (first.quantized.size() != second.quantized.size()) {
    return absl::FailedPreconditionError(StrCat("the two models have losses of ",
                                                first.quantized.size(), " and ",
                                                second.quantized.size(), " quantizers"));
  }
  LossesDifference result{
      .sequences = std::ssize(before.weight),
      .tokens = before.tokens,
      .loss_nats = DifferenceOf({before.loss, before.weight}, {after.loss, after.weight})};
  for (size_t i = 0; i < first.quantized.size(); ++i) {
    QuantizerDifference& quantizer = result.quantizers.emplace_back();
    if (first.quantized[i].empty() || second.quantized[i].empty()) continue;
    PTQWATCH_ASSIGN_OR_RETURN(const QuantizedSums a, SumsUnder(first.quantized[i], before));
    PTQWATCH_ASSIGN_OR_RETURN(const QuantizedSums b, SumsUnder(second.quantized[i], after));
    quantizer.loss_nats = DifferenceOf({a.loss, before.weight}, {b.loss, after.weight});
    quantizer.delta_nats = DifferenceOf({a.change, before.weight}, {b.change, after.weight});
    quantizer.error_ratio = DifferenceOf({a.change, before.loss}, {b.change, after.loss});
  }
  return result;
}

}  // namespace ptqwatch::internal
