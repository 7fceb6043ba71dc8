#ifndef PTQWATCH_BUDGET_GRID_STRETCH_H_
#define PTQWATCH_BUDGET_GRID_STRETCH_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ptqwatch::internal {

/// Thins out the schedule of a rank that has no time for all of it. Ranks do not talk, and yet must
/// measure the same steps: each takes every 2^k-th snapshot of one common grid, so a coarser grid
/// lies inside a finer one. The common grid is that of a decaying learning rate,
/// ScheduleOptions::decay_density times as fine as the regular one. Not thread-safe.
class GridStretch {
 public:
  /// Points of the common grid per regular snapshot: the power of two at or below `decay_density`.
  static int64_t Density(int64_t decay_density);

  /// REQUIRES: `density` is a power of two.
  explicit GridStretch(int64_t density);

  /// k: every 2^k-th point of the common grid is taken; while the learning rate does not decay,
  /// only regular ones. At first, only regular ones.
  int stretch() const { return stretch_; }

  /// Takes the mean seconds that a snapshot needs until the next one may come, and the seconds
  /// between two regular snapshots of the schedule; 0: unknown. The first snapshot chooses; later
  /// the grid becomes coarser after two snapshots in a row that need more than is between two of
  /// them, and finer after eight that need less than a quarter. Returns what changed and why.
  std::optional<std::string> Learn(double needed_seconds, double interval_seconds);

 private:
  double Spacing(int stretch, double interval_seconds) const;

  const int64_t density_;
  int stretch_;
  bool chosen_ = false;
  int too_fine_ = 0;  // in a row
  int too_coarse_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BUDGET_GRID_STRETCH_H_
