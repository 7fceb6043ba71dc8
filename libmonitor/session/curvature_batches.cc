#include "session/curvature_batches.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {
namespace {

// Tolerance for rounding between the losses of the pieces and of the whole batch.
constexpr double kSameLoss = 1e-4;

// The number of sequences of a batch, from its first tensor.
int64_t SequencesOf(const Batch& batch) {
  return batch.empty() || !batch[0].defined() || batch[0].dim() == 0 ? 1 : batch[0].size(0);
}

double SumOf(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum;
}

// The first `rows` sequences of a batch; empty if it cannot be cut there.
std::optional<Batch> CutTo(Replica& replica, const Batch& batch, const LossValues& whole,
                           int64_t rows) {
  const int64_t all = SequencesOf(batch);
  std::optional<Batch> cut = RowsOf(batch, all, 0, rows);
  if (!cut) return std::nullopt;
  const absl::StatusOr<LossValues> losses = replica.Losses(*cut);
  if (!losses.ok()) return std::nullopt;
  if (losses->values.dim() > 0) {
    if (losses->values.size(0) != rows || whole.values.size(0) != all) return std::nullopt;
    // The losses of a sequence may depend on the others of its batch, as those of a contrast do.
    LossValues first = whole.values.narrow(0, 0, rows);
    if (whole.weights.defined()) first.weights = whole.weights.narrow(0, 0, rows);
    const absl::StatusOr<UnitLosses> before = SumByUnit(first, *cut);
    const absl::StatusOr<UnitLosses> after = SumByUnit(*losses, *cut);
    if (!before.ok() || !after.ok()) return std::nullopt;
    const double sum = SumOf(before->sum);
    const bool same = std::abs(SumOf(after->sum) - sum) <= kSameLoss * std::abs(sum);
    return same ? std::move(cut) : std::nullopt;
  }
  // A single value must be a mean over the sequences.
  const absl::StatusOr<LossValues> rest = replica.Losses(*RowsOf(batch, all, rows, all - rows));
  if (!rest.ok()) return std::nullopt;
  const auto sum = [](const LossValues& loss, int64_t sequences) {
    return loss.values.item<double>() * static_cast<double>(sequences);
  };
  const double expected = sum(whole, all);
  const bool mean = std::abs(sum(*losses, rows) + sum(*rest, all - rows) - expected) <=
                    kSameLoss * std::abs(expected);
  return mean ? std::move(cut) : std::nullopt;
}

}  // namespace

std::optional<Batch> RowsOf(const Batch& batch, int64_t all, int64_t begin, int64_t rows) {
  Batch cut;
  for (const at::Tensor& tensor : batch) {
    if (!tensor.defined() || tensor.dim() == 0 || tensor.size(0) != all) return std::nullopt;
    cut.push_back(tensor.narrow(0, begin, rows).contiguous());
  }
  return cut;
}

absl::StatusOr<BatchTotals> TotalsOf(Replica& replica, const std::vector<Batch>& batches,
                                     const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  BatchTotals totals;
  for (const Batch& batch : batches) {
    PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    PTQWATCH_ASSIGN_OR_RETURN(const LossValues losses, replica.Losses(batch));
    PTQWATCH_ASSIGN_OR_RETURN(const UnitLosses units, SumByUnit(losses, batch));
    totals.weight += TotalWeight(losses);
    totals.tokens += units.tokens;
  }
  if (!(totals.weight > 0)) {
    return absl::FailedPreconditionError("every token of the curvature batch is masked out");
  }
  return totals;
}

int64_t LossesASequence(const LossValues& losses, const Batch& batch) {
  const at::Tensor& values = losses.values;
  if (values.dim() == 2) return std::max<int64_t>(1, values.size(1));
  if (values.dim() == 1) return 1;
  const bool tokens = !batch.empty() && batch[0].defined() &&
                      at::isIntegralType(batch[0].scalar_type(), /*includeBool=*/false);
  const int64_t sequences = std::max<int64_t>(1, SequencesOf(batch));
  return tokens ? std::max<int64_t>(1, batch[0].numel() / sequences) : 1;
}

int64_t DefaultCurvatureSequences(int64_t losses_a_sequence) {
  const int64_t enough = (kDefaultCurvatureLosses + losses_a_sequence - 1) / losses_a_sequence;
  return std::max(kDefaultCurvatureSequences, enough);
}

int64_t CountSequences(const std::vector<Batch>& batches) {
  int64_t sequences = 0;
  for (const Batch& batch : batches) sequences += SequencesOf(batch);
  return sequences;
}

std::vector<Batch> FirstSequences(Replica& replica, const std::vector<Batch>& batches,
                                  int64_t sequences) {
  std::vector<Batch> first;
  for (const Batch& batch : batches) {
    if (sequences <= 0) break;
    // Errors of the closure come up again, with the batch that they are about.
    const absl::StatusOr<LossValues> losses = replica.Losses(batch);
    if (losses.ok() && TotalWeight(*losses) == 0) continue;
    const int64_t here = SequencesOf(batch);
    // A mean counts once, so that a smaller batch beside others would count for too much.
    const bool counts_once = losses.ok() && losses->values.dim() == 0 && !first.empty();
    if (here > sequences && losses.ok() && !counts_once) {
      // A model may require batches of one size, or have the sequences in another dimension.
      const std::optional<Batch> cut = CutTo(replica, batch, *losses, sequences);
      if (cut) {
        first.push_back(*cut);
        break;
      }
    }
    first.push_back(batch);
    sequences -= here;
  }
  return first.empty() ? batches : first;
}

absl::StatusOr<std::vector<Batch>> MicroBatches(Replica& replica, const std::vector<Batch>& batches,
                                                int64_t sequences) {
  std::vector<Batch> pieces;
  for (size_t i = 0; i < batches.size(); ++i) {
    const int64_t all = SequencesOf(batches[i]);
    if (all <= sequences) {
      pieces.push_back(batches[i]);
      continue;
    }
    const auto cannot = [&](std::string_view why) {
      return absl::FailedPreconditionError(StrCat("curvature.micro_batch = ", sequences, ": batch ",
                                                  i, " of ", all,
                                                  " sequences cannot be cut: ", why));
    };
    PTQWATCH_ASSIGN_OR_RETURN(const LossValues whole, replica.Losses(batches[i]));
    PTQWATCH_ASSIGN_OR_RETURN(const UnitLosses expected, SumByUnit(whole, batches[i]));
    double sum = 0;
    for (int64_t begin = 0; begin < all; begin += sequences) {
      const int64_t rows = std::min(sequences, all - begin);
      std::optional<Batch> piece = RowsOf(batches[i], all, begin, rows);
      if (!piece) return cannot("one of its tensors does not have one row per sequence");
      PTQWATCH_ASSIGN_OR_RETURN(const LossValues losses, replica.Losses(*piece));
      if (losses.values.dim() == 0) {
        return cannot("its loss is a mean over the batch; return one value per sequence or token");
      }
      PTQWATCH_ASSIGN_OR_RETURN(const UnitLosses units, SumByUnit(losses, *piece));
      sum += SumOf(units.sum);
      pieces.push_back(*std::move(piece));
    }
    const double before = SumOf(expected.sum);
    if (std::abs(sum - before) > kSameLoss * std::abs(before)) {
      return cannot("the losses of a sequence depend on the other sequences of its batch");
    }
  }
  return pieces;
}

}  // namespace ptqwatch::internal
