#ifndef PTQWATCH_REPORT_LR_STATE_H_
#define PTQWATCH_REPORT_LR_STATE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "ptqwatch/step_info.h"

namespace ptqwatch::internal {

/// The learning-rate schedule as known at a step. Plain data, copied with a snapshot without
/// allocation.
struct LrState {
  /// Change points that are in no earlier report, oldest first.
  static constexpr int kMaxPoints = 32;
  std::array<LrChangePoint, kMaxPoints> points{};
  int num_points = 0;
  LrPhase phase = LrPhase::kUnknown;
  std::optional<int64_t> decay_onset_step;
  bool rolled_back = false;

  std::vector<LrChangePoint> Points() const {
    return {points.begin(), points.begin() + num_points};
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_LR_STATE_H_
