#include "session/mean_batches.h"

#include <cmath>
#include <optional>
#include <utility>

#include "session/curvature_batches.h"

namespace ptqwatch::internal {
namespace {

// Tolerance for rounding between the mean over the pieces and the whole batch.
constexpr double kSameMean = 1e-4;

// The loss, if the closure returns one value for a batch.
std::optional<double> MeanLoss(Replica& replica, const Batch& batch) {
  const absl::StatusOr<LossValues> losses = replica.Losses(batch);
  if (!losses.ok() || losses->values.dim() != 0) return std::nullopt;
  return losses->values.item<double>();
}

// The largest number of equal pieces, up to `pieces`.
int64_t EvenPieces(int64_t rows, int64_t pieces) {
  while (pieces > 1 && rows % pieces != 0) --pieces;
  return pieces;
}

}  // namespace

std::vector<Batch> CutMeanBatches(Replica& replica, const std::vector<Batch>& batches,
                                  int64_t pieces) {
  if (batches.empty()) return batches;
  const int64_t rows = CountSequences({batches[0]});
  const int64_t count = EvenPieces(rows, pieces);
  if (count <= 1) return batches;
  const std::optional<double> whole = MeanLoss(replica, batches[0]);
  if (!whole) return batches;
  std::vector<Batch> cut;
  double mean = 0;
  for (const Batch& batch : batches) {
    for (int64_t piece = 0; piece < count; ++piece) {
      std::optional<Batch> part = RowsOf(batch, rows, piece * (rows / count), rows / count);
      if (!part) return batches;
      if (std::ssize(cut) < count) {
        const std::optional<double> loss = MeanLoss(replica, *part);
        if (!loss) return batches;
        mean += *loss / static_cast<double>(count);
      }
      cut.push_back(*std::move(part));
    }
    const bool same = std::abs(mean - *whole) <= kSameMean * std::abs(*whole);
    if (!same) return batches;
  }
  return cut;
}

}  // namespace ptqwatch::internal
