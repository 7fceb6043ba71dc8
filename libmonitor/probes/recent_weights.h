#ifndef PTQWATCH_PROBES_RECENT_WEIGHTS_H_
#define PTQWATCH_PROBES_RECENT_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/reservation.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// The parameters of the newest snapshots of a run, and their mean. Holds a copy of each, in memory
/// that it reserves. One thread.
class WeightWindow {
 public:
  /// `entries` of the replica's table are kept.
  WeightWindow(const Replica& replica, std::vector<int> entries);

  /// Bytes of one snapshot.
  int64_t snapshot_bytes() const { return snapshot_bytes_; }
  size_t size() const { return snapshots_.size(); }
  /// REQUIRES: size() > 0.
  int64_t first_step() const { return snapshots_.front().step; }

  /// Copies what is loaded. Of the others the newest stay, so that there are at most `most`: one of
  /// those that go leaves its memory to the new one. ResourceExhausted, without the new one, where
  /// that is refused. May throw. REQUIRES: most > 0.
  absl::Status Add(int64_t step, size_t most, const std::shared_ptr<ByteBudget>& bytes);
  void DropOldest() { snapshots_.pop_front(); }
  /// Forgets what is from this step or a later one.
  void DropFrom(int64_t step);
  void Clear() { snapshots_.clear(); }

  /// AverageWeights over the snapshots, oldest first. REQUIRES: size() > 0.
  std::vector<Replica::Override> Mean() const;

 private:
  struct Kept {
    int64_t step = 0;
    std::vector<at::Tensor> weights;  // one for each entry
    std::unique_ptr<Reservation> held;
  };
  const Replica& replica_;
  const std::vector<int> entries_;
  int64_t snapshot_bytes_ = 0;
  std::deque<Kept> snapshots_;  // by ascending step
};

/// The exponential average of the parameters of a run's snapshots, which begins with the first of
/// them. In float64. One thread.
class ExponentialWeights {
 public:
  ExponentialWeights(const Replica& replica, std::vector<int> entries, double decay);

  int64_t bytes() const { return bytes_; }
  int64_t snapshots() const { return snapshots_; }
  /// Of the first snapshot in it. REQUIRES: snapshots() > 0.
  int64_t first_step() const { return first_step_; }

  /// AddToExponential of what is loaded. ResourceExhausted where the memory is refused. Where it
  /// throws, the average begins anew.
  absl::Status Add(int64_t step, const std::shared_ptr<ByteBudget>& bytes);
  /// Begins anew where it has a snapshot of this step or a later one, which cannot be taken out.
  void DropFrom(int64_t step);
  void Clear();

  /// Rounded to the dtypes of the parameters. REQUIRES: snapshots() > 0.
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

/// The floating-point parameters of a run's newest snapshots, one by one and as an exponential
/// average, for what is measured of them. Holds as many as memory allows beside all measuring. One
/// thread.
class RecentWeights {
 public:
  /// `replica` must outlive it.
  RecentWeights(const Replica& replica, const AveragingOptions& options);

  /// Bytes that measuring takes, and those of them that are kept while averages are measured.
  void SetAside(int64_t measuring_bytes, int64_t kept_bytes);

  /// Takes what is loaded in the replica: the snapshot of `step`. Forgets those that a rollback has
  /// undone, and gives memory back that measuring is short of. Costs a copy of the parameters.
  void Take(int64_t step, bool regular, const ExecutionContext& context);
  void Clear();

  const WeightWindow& window() const { return window_; }
  /// Nothing unless AveragingOptions::decay asks for it.
  const std::optional<ExponentialWeights>& exponential() const { return exponential_; }
  /// Entries of the replica's table that are kept.
  const std::vector<int>& entries() const { return entries_; }
  /// Snapshots of the window that memory allowed at the last one.
  size_t fitting() const { return fitting_; }
  /// The same if `available` bytes were left beside what is kept.
  size_t FittingIn(int64_t available) const;
  /// Why the last snapshot was not taken.
  const absl::Status& problem() const { return problem_; }

 private:
  // Snapshots of the window that fit where so many bytes remain beside the window.
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
