#include "session/batch_checks.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "session/curvature_batches.h"
#include "snapshot/batches.h"
#include "snapshot/finite.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {
namespace {

// Tolerance for rounding between the sum of the halves and the whole batch.
constexpr double kSameSum = 1e-4;

// The loss, if the closure returns one value for the batch. Empty otherwise, or if it throws.
std::optional<double> OneValue(Replica& replica, const std::optional<Batch>& batch) {
  if (!batch) return std::nullopt;
  const absl::StatusOr<LossValues> losses = replica.Losses(*batch);
  if (!losses.ok() || losses->values.dim() != 0) return std::nullopt;
  return losses->values.item<double>();
}

absl::Status CheckOne(Replica& replica, const Batch& batch) {
  PTQWATCH_ASSIGN_OR_RETURN(const LossValues losses, replica.Losses(batch));
  PTQWATCH_RETURN_IF_ERROR(SumByUnit(losses, batch).status());
  return CheckFiniteLosses(losses, batch, replica.table());
}

}  // namespace

absl::Status CheckIsNoSum(Replica& replica, const Batch& batch) {
  const int64_t rows = CountSequences({batch});
  if (rows < 2) return absl::OkStatus();
  const std::optional<double> whole = OneValue(replica, batch);
  if (!whole || *whole == 0) return absl::OkStatus();
  const int64_t half = rows / 2;
  const std::optional<double> first = OneValue(replica, RowsOf(batch, rows, 0, half));
  if (!first) return absl::OkStatus();
  const std::optional<double> second = OneValue(replica, RowsOf(batch, rows, half, rows - half));
  if (!second || !(std::abs(*first + *second - *whole) <= kSameSum * std::abs(*whole))) {
    return absl::OkStatus();
  }
  // The mean of the whole too is that of one half if the other half is masked out.
  if (*first == 0 || *second == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(StrFormat(
      "losses returns a sum over the batch: %.6g for %d sequences, %.6g for the first %d of them "
      "and %.6g for the others. Return their mean, or the loss of each sequence or token "
      "(at::Reduction::None), which gives tighter error bars",
      *whole, rows, *first, half, *second));
}

absl::StatusOr<std::string> CheckEachBatch(Replica& replica,
                                           const std::vector<CheckedBatches>& kinds,
                                           double max_seconds, Clock* clock) {
  size_t most = 0;
  for (const CheckedBatches& kind : kinds) most = std::max(most, kind.batches->size());
  Stopwatch watch(clock);
  double spent = 0;
  double longest = 0;
  std::vector<int64_t> left(kinds.size());
  for (size_t i = 0; i < most; ++i) {
    for (size_t k = 0; k < kinds.size(); ++k) {
      const CheckedBatches& kind = kinds[k];
      if (i < kind.first || i >= kind.batches->size()) continue;
      if (spent + longest > max_seconds) {
        ++left[k];
        continue;
      }
      const absl::Status status = CheckOne(replica, (*kind.batches)[i]);
      if (!status.ok()) return OfBatch(kind.what, i, status);
      const double seconds = watch.Lap();
      spent += seconds;
      longest = std::max(longest, seconds);
    }
  }
  std::string text;
  int64_t all = 0;
  for (size_t k = 0; k < kinds.size(); ++k) {
    if (left[k] == 0) continue;
    all += left[k];
    text += StrCat(text.empty() ? "" : ", ", left[k], " of ", kinds[k].batches->size(), " ",
                   kinds[k].what, " batches");
  }
  if (all == 0) return text;
  return StrFormat("%s (%.2g s)", text, static_cast<double>(all) * longest);
}

}  // namespace ptqwatch::internal
