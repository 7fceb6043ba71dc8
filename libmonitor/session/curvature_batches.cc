#include "session/curvature_batches.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {
namespace {

// The losses of the pieces may differ from that of the whole batch by rounding.
constexpr double kSameLoss = 1e-4;

// The sequences of a batch, taken from its first tensor.
int64_t SequencesOf(const Batch& batch) {
  return batch.empty() || !batch[0].defined() || batch[0].dim() == 0 ? 1 : batch[0].size(0);
}

// `rows` rows of every tensor; nothing unless all of them have `all` rows.
std::optional<Batch> Rows(const Batch& batch, int64_t all, int64_t begin, int64_t rows) {
  Batch cut;
  for (const at::Tensor& tensor : batch) {
    if (!tensor.defined() || tensor.dim() == 0 || tensor.size(0) != all) return std::nullopt;
    cut.push_back(tensor.narrow(0, begin, rows).contiguous());
  }
  return cut;
}

double SumOf(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum;
}

}  // namespace

std::vector<Batch> FirstSequences(Replica& replica, const std::vector<Batch>& batches,
                                  int64_t sequences) {
  std::vector<Batch> first;
  for (const Batch& batch : batches) {
    if (sequences <= 0) break;
    const int64_t here = SequencesOf(batch);
    if (here > sequences) {
      const std::optional<Batch> cut = Rows(batch, here, 0, sequences);
      // A model may want batches of one size, or have the sequences in another dimension.
      const absl::StatusOr<LossValues> losses =
          cut ? replica.Losses(*cut) : absl::UnavailableError("");
      if (losses.ok() && losses->values.dim() > 0 && losses->values.size(0) == sequences) {
        first.push_back(*cut);
        break;
      }
    }
    first.push_back(batch);
    sequences -= here;
  }
  return first;
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
      std::optional<Batch> piece = Rows(batches[i], all, begin, rows);
      if (!piece) return cannot("one of its tensors does not have one row a sequence");
      PTQWATCH_ASSIGN_OR_RETURN(const LossValues losses, replica.Losses(*piece));
      if (losses.values.dim() == 0) {
        return cannot("its loss is a mean over the batch; return one value a sequence or token");
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
