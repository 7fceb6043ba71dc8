#ifndef PTQWATCH_MONITOR_TRAINER_SIDE_H_
#define PTQWATCH_MONITOR_TRAINER_SIDE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "handover/lr_tracker.h"
#include "handover/page.h"
#include "handover/schedule.h"
#include "monitor/trainer_options.h"
#include "ptqwatch/step_info.h"
#include "ptqwatch/subject.h"
#include "staging/slot_filler.h"

namespace ptqwatch::internal {

/// The trainer's half of a monitor, which runs inside OnStep and Finish: follows the learning rate,
/// decides whether a snapshot is due and fills the slot. What it does shows on the page. Takes no
/// lock, and allocates nothing unless a snapshot is due. Steps that arrive while another thread is
/// inside OnStep are skipped and counted.
class TrainerSide {
 public:
  /// `page`, `subject` and `filler` must outlive this. `wake` wakes the measuring half and must not
  /// throw.
  TrainerSide(Page* page, const Subject* subject, SlotFiller* filler, const TrainerOptions& options,
              std::function<void()> wake)
      : page_(*page),
        subject_(*subject),
        filler_(*filler),
        options_(options),
        wake_(std::move(wake)),
        schedule_(options.schedule) {}

  void OnStep(const StepInfo& info) noexcept;
  /// Orders the next update after a copy that is made beside training. O(1).
  void BeforeUpdate() noexcept;

  /// Any thread, at the end: releases the live tensors. Does nothing if another thread is inside.
  void End() noexcept;

  /// Takes a snapshot of the last step, even if it already has one, unless that one still waits in
  /// the slot. kFailed before the first step.
  FillOutcome TakeLast() noexcept;

 private:
  void Step(const StepInfo& info) noexcept;
  FillOutcome Take(SnapshotTrigger trigger, bool additional) noexcept;
  // Call it once the snapshot of the last step is in the slot or has failed: counts it and wakes
  // the measuring half.
  void Note(const FillOutcome& outcome) noexcept;
  // Whether the measuring half has dropped the newest snapshot.
  bool Dropped() const noexcept { return offered_ != 0 && page_.slot.dropped() == offered_; }
  // Counts a snapshot that was dropped, whose report would have had `lr`.
  void TakeBack(const LrState& lr) noexcept;
  void NoteDrop() noexcept;
  void GatePending() noexcept;
  void DiscardPending(std::string_view why) noexcept;
  // Whether a copy at `now` would exceed the time that copies may hold training up.
  bool HoldsUpTooOften(double now) const noexcept { return !options_.sharded && now < next_copy_; }
  // Whether an additional snapshot can be taken without delaying a due one.
  bool HasTimeForMore() const noexcept;

  Page& page_;
  const Subject& subject_;
  SlotFiller& filler_;
  const TrainerOptions options_;
  LrTracker lr_;
  bool past_known_ = false;  // lr_ continues that of an earlier attempt, if there was one
  const std::function<void()> wake_;
  std::atomic_flag entered_;
  Schedule schedule_;
  std::optional<StepInfo> last_;
  int64_t pass_ = 0;      // SnapshotHeader::pass
  FillOutcome pending_;   // while the slot is pending
  int64_t offered_ = 0;   // number of the newest snapshot; 0: none, or it was dropped
  LrState offered_lr_;    // what that one was to report
  double next_copy_ = 0;  // seconds of the clock; earliest time of the next copy
  int64_t requests_served_ = 0;
  RateLimitedLog not_taken_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_TRAINER_SIDE_H_
