#ifndef PTQWATCH_HANDOVER_LR_TRACKER_H_
#define PTQWATCH_HANDOVER_LR_TRACKER_H_

#include <cstdint>
#include <optional>

#include "ptqwatch/step_info.h"
#include "report/lr_state.h"

namespace ptqwatch::internal {

/// Follows the learning rate as a polyline. O(1) per step, no allocation. One caller at a time.
///
/// A corner is kept if the rate leaves the line of the current segment by more than 0.5 % of the
/// largest rate seen, so a warmup-stable-decay schedule has three corners and a cosine a few dozen.
/// If there are too many corners between two reports, the newest ones replace each other and the
/// oldest stay.
class LrTracker {
 public:
  /// Without a rate, or with one that is not finite, the last one holds; before the first, the
  /// phase is unknown.
  void Step(int64_t step, std::optional<double> learning_rate,
            std::optional<LrPhase> override_phase) noexcept;
  LrPhase phase() const { return state_.phase; }
  const LrState& state() const { return state_; }
  /// Restores details that the corners and report steps of an earlier attempt are too coarse to
  /// show, from its newest report. Call it after these were replayed.
  void Restore(LrPhase phase, std::optional<int64_t> decay_onset_step) noexcept;
  /// Follows the steps so far as a continuation of `past`, by their corners.
  void Continue(const LrTracker& past) noexcept;
  /// Clears the corners and the rollback flag after a report has taken them.
  void Reported() noexcept;
  /// Takes back the corners and the rollback flag that a report was to take: there will be none.
  void NotReported(const LrState& taken) noexcept;

 private:
  void AddPoint(int64_t step, double learning_rate) noexcept;
  void Restart(int64_t step, double learning_rate) noexcept;
  LrPhase Infer(int64_t step, double learning_rate) noexcept;

  LrState state_;
  bool started_ = false;
  bool any_rate_ = false;
  int64_t first_step_ = 0;
  int64_t last_step_ = 0;
  double last_rate_ = 0;
  double largest_rate_ = 0;
  // Current straight segment, from (anchor_step_, anchor_rate_). Its slope is known after a second
  // step.
  int64_t anchor_step_ = 0;
  double anchor_rate_ = 0;
  std::optional<double> slope_;
  // Largest rate since the last rise ended: the plateau that a decay starts from.
  double plateau_ = 0;
  int64_t flat_steps_ = 0;
  bool decayed_ = false;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HANDOVER_LR_TRACKER_H_
