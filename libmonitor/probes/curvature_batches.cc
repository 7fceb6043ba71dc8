#include "probes/curvature_batches.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/strings.h"
#include "probes/paired_loss.h"

namespace ptqwatch::internal {
namespace {

// Pieces of a batch may differ from the whole by rounding.
constexpr double kSameLoss = 1e-4;

// Sequences of a batch, as far as its first tensor tells.
int64_t SequencesOf(const Batch& batch) {
  return batch.empty() || !batch[0].defined() || batch[0].dim() == 0 ? 1 : batch[0].size(0);
}

// `rows` rows of every tensor, where all of them have `all` rows.
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
    absl::StatusOr<LossValues> whole = replica.Losses(batches[i]);
    if (!whole.ok()) return whole.status();
    absl::StatusOr<UnitLosses> expected = SumByUnit(*whole, batches[i]);
    if (!expected.ok()) return expected.status();
    double sum = 0;
    for (int64_t begin = 0; begin < all; begin += sequences) {
      const int64_t rows = std::min(sequences, all - begin);
      std::optional<Batch> piece = Rows(batches[i], all, begin, rows);
      if (!piece) return cannot("a tensor of it has not one row a sequence");
      absl::StatusOr<LossValues> losses = replica.Losses(*piece);
      if (!losses.ok()) return losses.status();
      if (losses->values.dim() == 0) {
        return cannot("its loss is a mean over the batch; return one value a sequence or token");
      }
      absl::StatusOr<UnitLosses> units = SumByUnit(*losses, *piece);
      if (!units.ok()) return units.status();
      sum += SumOf(units->sum);
      pieces.push_back(*std::move(piece));
    }
    const double before = SumOf(expected->sum);
    if (std::abs(sum - before) > kSameLoss * std::abs(before)) {
      return cannot("the losses of a sequence depend on the others of its batch");
    }
  }
  return pieces;
}

double TotalWeight(const LossValues& losses) {
  at::NoGradGuard no_grad;
  if (!losses.weights.defined()) return static_cast<double>(losses.values.numel());
  return losses.weights.to(at::kDouble).sum().item<double>();
}

}  // namespace ptqwatch::internal
