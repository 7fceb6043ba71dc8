#ifndef PTQWATCH_MONITOR_TRAINER_SIDE_H_
#define PTQWATCH_MONITOR_TRAINER_SIDE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "handover/staging.h"
#include "monitor/run_core.h"
#include "ptqwatch/step_info.h"
#include "trainer/lr_tracker.h"
#include "trainer/schedule.h"
#include "trainer/step_outcome.h"

namespace ptqwatch::internal {

/// The part that runs inside OnStep and Finish: follows the learning rate, decides whether a
/// snapshot is due and fills the staging slot. Takes no lock, and allocates nothing unless a
/// snapshot is due. Steps that arrive while another thread is inside OnStep are skipped and
/// counted.
class TrainerSide {
 public:
  /// `core` must have its staging slot and must outlive this. `lr` is the state left by the
  /// previous attempt. `wake` wakes the monitor thread and must not throw.
  TrainerSide(RunCore* core, const LrTracker& lr, std::function<void()> wake)
      : core_(*core), lr_(lr), wake_(std::move(wake)), schedule_(core->schedule) {}

  StepOutcome OnStep(const StepInfo& info) noexcept;
  /// Monitor's process, if the trainer is another process: repeats a step that TrainerSide::OnStep
  /// has done there.
  void Replay(const StepInfo& info, const StepOutcome& outcome) noexcept;
  /// Orders the next update after a copy that is made beside training. O(1).
  void BeforeUpdate() noexcept;

  /// Any thread, at the end: releases the live tensors. Does nothing if another thread is inside.
  void End() noexcept;

  /// Takes a snapshot of the last step, even if it already has one. REQUIRES: last_step().
  FillOutcome TakeLast() noexcept;
  std::optional<int64_t> last_step() const {
    return last_ ? std::optional(last_->step) : std::nullopt;
  }
  bool last_step_taken() const { return last_ && last_taken_step_ == last_->step; }
  int64_t taken() const { return taken_; }  ///< snapshots so far

 private:
  StepOutcome Step(const StepInfo& info) noexcept;
  // Follows a step, apart from the decision whether it has a snapshot.
  void Follow(const StepInfo& info, double now, bool measuring) noexcept;
  SnapshotHeader Header(SnapshotTrigger trigger, bool additional,
                        double unix_seconds) const noexcept;
  FillOutcome Take(SnapshotTrigger trigger, bool additional, double unix_seconds) noexcept;
  FillOutcome Take(SnapshotTrigger trigger, bool additional, StepOutcome& outcome) noexcept;
  // Call it once the snapshot of last_taken_step_ is in the slot or has failed: counts it and wakes
  // the thread.
  void Note(const FillOutcome& outcome) noexcept;
  void GatePending() noexcept;
  void DiscardPending(std::string_view why) noexcept;
  // Whether a copy at `now` would exceed the time that copies may hold training up.
  bool HoldsUpTooOften(double now) const noexcept { return now < next_copy_; }
  // Whether an additional snapshot can be taken without delaying a due one.
  bool HasTimeForMore() const noexcept;

  RunCore& core_;
  LrTracker lr_;
  const std::function<void()> wake_;
  std::atomic_flag entered_;
  Schedule schedule_;
  std::optional<StepInfo> last_;
  std::optional<int64_t> last_taken_step_;
  FillOutcome pending_;   // while the slot is pending
  double next_copy_ = 0;  // seconds of the clock; earliest time of the next copy
  int64_t taken_ = 0;
  int64_t requests_served_ = 0;
  RateLimitedLog not_taken_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_TRAINER_SIDE_H_
