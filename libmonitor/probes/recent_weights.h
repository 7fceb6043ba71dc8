#ifndef PTQWATCH_PROBES_RECENT_WEIGHTS_H_
#define PTQWATCH_PROBES_RECENT_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/reservation.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// The parameters of a run's newest snapshots, and their mean. Holds a copy of each, in memory that
/// it reserves. Not thread-safe.
class WeightWindow {
 public:
  /// Keeps the given `entries` of the replica's table.
  WeightWindow(const Replica& replica, std::vector<int> entries);

  /// Bytes of one snapshot.
  int64_t snapshot_bytes() const { return snapshot_bytes_; }
  size_t size() const { return snapshots_.size(); }
  /// Step of the oldest of the `newest` newest snapshots. REQUIRES: 0 < newest <= size().
  int64_t first_step(size_t newest) const { return snapshots_[size() - newest].step; }
  int64_t first_step() const { return first_step(size()); }
  /// Whether the newest snapshot is that of `step`.
  bool EndsAt(int64_t step) const { return size() > 0 && snapshots_.back().step == step; }

  /// Adds a copy of the loaded weights and drops the oldest snapshots beyond `most`, reusing the
  /// memory of one. ResourceExhausted if memory for the copy is refused; it is then not added. May
  /// throw. REQUIRES: most > 0.
  absl::Status Add(int64_t step, size_t most, const std::shared_ptr<ByteBudget>& bytes);
  void DropOldest() { snapshots_.pop_front(); }
  /// Drops snapshots of this step or later.
  void DropFrom(int64_t step);
  void Clear() { snapshots_.clear(); }

  /// AverageWeights over the snapshots, oldest first. REQUIRES: size() > 0.
  std::vector<Replica::Override> Mean() const { return Average(size(), {}); }
  /// WeightedSumOf the newest snapshots, one for each weight, oldest first. REQUIRES: at least one
  /// weight and at most size().
  std::vector<Replica::Override> WeightedSum(absl::Span<const double> weights) const {
    return Average(weights.size(), weights);
  }

 private:
  struct Kept {
    int64_t step = 0;
    std::vector<at::Tensor> weights;  // one for each entry
    std::unique_ptr<Reservation> held;
  };
  std::vector<Replica::Override> Average(size_t newest, absl::Span<const double> weights) const;

  const Replica& replica_;
  const std::vector<int> entries_;
  int64_t snapshot_bytes_ = 0;
  std::deque<Kept> snapshots_;  // by ascending step
};

/// The exponential average of a run's snapshots, from the first one on, in float64. Not
/// thread-safe.
class ExponentialWeights {
 public:
  ExponentialWeights(const Replica& replica, std::vector<int> entries, double decay);

  int64_t bytes() const { return bytes_; }
  int64_t snapshots() const { return snapshots_; }
  /// Step of the first snapshot in the average. REQUIRES: snapshots() > 0.
  int64_t first_step() const { return first_step_; }

  /// Adds the loaded weights by AddToExponential. ResourceExhausted if memory is refused. If it
  /// throws, the average starts over.
  absl::Status Add(int64_t step, const std::shared_ptr<ByteBudget>& bytes);
  /// Starts over if the average includes a snapshot of this step or later, which cannot be removed.
  void DropFrom(int64_t step);
  void Clear();

  /// The average, rounded to the dtypes of the parameters. REQUIRES: snapshots() > 0.
  std::vector<Replica::Override> Mean() const;

 private:
  const Replica& replica_;
  const std::vector<int> entries_;
  const double decay_;
  int64_t bytes_ = 0;
  int64_t snapshots_ = 0;
  int64_t first_step_ = 0;
  int64_t newest_step_ = 0;
  std::vector<at::Tensor> means_;  // one for each entry
  std::unique_ptr<Reservation> held_;
};

/// The floating-point parameters of a run's newest snapshots, for probes: each snapshot, and an
/// exponential average. Holds as many snapshots as memory allows beside all measuring. Not
/// thread-safe.
class RecentWeights {
 public:
  /// `replica` must outlive it.
  RecentWeights(const Replica& replica, const AveragingOptions& options);

  /// Sets the bytes that measuring takes, and the part of them that is kept while averages are
  /// measured.
  void SetAside(int64_t measuring_bytes, int64_t kept_bytes);

  /// Takes the snapshot of `step`, which must be loaded in the replica. Drops snapshots that a
  /// rollback has undone, and frees memory that measuring lacks. Costs a copy of the parameters.
  void Take(int64_t step, bool regular, const ExecutionContext& context);
  void Clear();

  const WeightWindow& window() const { return window_; }
  /// nullopt unless AveragingOptions::decay is positive.
  const std::optional<ExponentialWeights>& exponential() const { return exponential_; }
  /// The entries of the replica's table that are kept.
  const std::vector<int>& entries() const { return entries_; }
  /// Number of snapshots in the window that memory allowed at the last one.
  size_t fitting() const { return fitting_; }
  /// The same number if `available` bytes were left in addition to the kept bytes.
  size_t FittingIn(int64_t available) const;
  /// Why the last snapshot was not taken; OK if it was.
  const absl::Status& problem() const { return problem_; }

 private:
  // Number of snapshots that fit in the window if `remaining` bytes are left beside it.
  size_t Fitting(int64_t remaining) const;
  absl::Status TakeFinite(int64_t step, const ExecutionContext& context);

  const Replica& replica_;
  const AveragingOptions options_;
  const std::vector<int> entries_;
  int64_t measuring_bytes_ = 0;
  int64_t kept_bytes_ = 0;
  int64_t seen_ = 0;  // regular snapshots
  size_t fitting_;
  absl::Status problem_;
  WeightWindow window_;
  std::optional<ExponentialWeights> exponential_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_RECENT_WEIGHTS_H_
