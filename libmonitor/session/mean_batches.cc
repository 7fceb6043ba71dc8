#include "session/mean_batches.h"

#include <cmath>
#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "base/stopwatch.h"
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

// Returns whether the mean loss of the parts is the loss of the whole batch.
bool HaveTheMeanOf(Replica& replica, const Batch& whole, absl::Span<const Batch> parts) {
  const std::optional<double> expected = MeanLoss(replica, whole);
  if (!expected) return false;
  double sum = 0;
  for (const Batch& part : parts) {
    const std::optional<double> loss = MeanLoss(replica, part);
    if (!loss) return false;
    sum += *loss;
  }
  const double mean = sum / static_cast<double>(parts.size());
  return std::abs(mean - *expected) <= kSameMean * std::abs(*expected);
}

}  // namespace

std::vector<Batch> CutMeanBatches(Replica& replica, const std::vector<Batch>& batches,
                                  int64_t pieces, double max_seconds, Clock* clock) {
  if (batches.empty()) return batches;
  const int64_t rows = CountSequences({batches[0]});
  const int64_t count = EvenPieces(rows, pieces);
  if (count <= 1) return batches;
  Stopwatch watch(clock);
  double spent = 0;
  std::vector<Batch> cut;
  for (size_t i = 0; i < batches.size(); ++i) {
    for (int64_t piece = 0; piece < count; ++piece) {
      std::optional<Batch> part = RowsOf(batches[i], rows, piece * (rows / count), rows / count);
      if (!part) return batches;
      cut.push_back(*std::move(part));
    }
    if (i > 0 && spent >= max_seconds) continue;
    const absl::Span<const Batch> parts = absl::MakeConstSpan(cut).last(static_cast<size_t>(count));
    if (!HaveTheMeanOf(replica, batches[i], parts)) return batches;
    spent += watch.Lap();
  }
  return cut;
}

}  // namespace ptqwatch::internal
