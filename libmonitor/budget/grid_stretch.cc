#include "budget/grid_stretch.h"

#include <bit>
#include <cmath>
#include <utility>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr int kMostStretch = 30;
constexpr double kRoom = 1.5;  // spacing of a chosen grid, in the seconds needed
constexpr double kTooCoarse = 0.25;
constexpr int kTooFineInARow = 2;
constexpr int kTooCoarseInARow = 8;

}  // namespace

int64_t GridStretch::Density(int64_t decay_density) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(decay_density)));
}

GridStretch::GridStretch(int64_t density)
    : density_(density), stretch_(std::countr_zero(static_cast<uint64_t>(density))) {}

double GridStretch::Spacing(int stretch, double interval_seconds) const {
  return std::ldexp(interval_seconds / static_cast<double>(density_), stretch);
}

std::optional<std::string> GridStretch::Learn(double needed_seconds, double interval_seconds) {
  if (!(interval_seconds > 0)) return std::nullopt;
  const double spacing = Spacing(stretch_, interval_seconds);
  too_fine_ = needed_seconds > spacing ? too_fine_ + 1 : 0;
  too_coarse_ = stretch_ > 0 && needed_seconds < kTooCoarse * spacing ? too_coarse_ + 1 : 0;
  if (std::exchange(chosen_, true) && too_fine_ < kTooFineInARow &&
      too_coarse_ < kTooCoarseInARow) {
    return std::nullopt;
  }
  too_fine_ = too_coarse_ = 0;
  int stretch = 0;
  while (stretch < kMostStretch && Spacing(stretch, interval_seconds) < kRoom * needed_seconds) {
    ++stretch;
  }
  if (std::exchange(stretch_, stretch) == stretch) return std::nullopt;
  return StrFormat(
      "snapshots are at least %.3g intervals of the schedule apart: one needs %.2g s, and the "
      "interval takes %.2g s",
      Spacing(stretch, 1), needed_seconds, interval_seconds);
}

}  // namespace ptqwatch::internal
