#ifndef PTQWATCH_MONITOR_TRAINER_SIDE_H_
#define PTQWATCH_MONITOR_TRAINER_SIDE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "monitor/run_core.h"
#include "ptqwatch/step_info.h"
#include "trainer/lr_tracker.h"
#include "trainer/schedule.h"
#include "trainer/staging.h"

namespace ptqwatch::internal {

/// What runs inside OnStep and Finish: follows the learning rate, decides whether a snapshot is due
/// and fills the staging slot. It takes no lock, and allocates nothing where no snapshot is due. A
/// step that comes while another thread is inside OnStep is left out, and counted.
class TrainerSide {
 public:
  /// `core` has its staging slot and outlives this. `lr` is as the previous attempt left it. `wake`
  /// wakes the monitor thread and must not throw.
  TrainerSide(RunCore* core, const LrTracker& lr, std::function<void()> wake)
      : core_(*core), lr_(lr), wake_(std::move(wake)), schedule_(core->schedule) {}

  void OnStep(const StepInfo& info) noexcept;
  /// Keeps the next update behind a copy that is made beside training. O(1).
  void BeforeUpdate() noexcept;

  /// Any thread, at the end: lets go of the live tensors. Nothing where another one is inside.
  void End() noexcept;

  /// Takes a snapshot of the last step, which may have one already. REQUIRES: last_step().
  FillOutcome TakeLast() noexcept;
  std::optional<int64_t> last_step() const {
    return last_ ? std::optional(last_->step) : std::nullopt;
  }
  bool last_step_taken() const { return last_ && last_taken_step_ == last_->step; }
  int64_t taken() const { return taken_; }  ///< snapshots so far

 private:
  void Step(const StepInfo& info) noexcept;
  FillOutcome Take(SnapshotTrigger trigger, bool additional) noexcept;
  // The snapshot of last_taken_step_ is in the slot, or is not: counts it, wakes the thread.
  void Note(const FillOutcome& outcome) noexcept;
  void GatePending() noexcept;
  void DiscardPending(std::string_view why) noexcept;
  // Whether a copy now would hold training up more than it may be.
  bool HoldsUpTooOften(double now) const noexcept { return now < next_copy_; }
  // Whether an additional snapshot would hold up nothing that is due anyway.
  bool HasTimeForMore() const noexcept;

  RunCore& core_;
  LrTracker lr_;
  const std::function<void()> wake_;
  std::atomic_flag entered_;
  Schedule schedule_;
  std::optional<StepInfo> last_;
  std::optional<int64_t> last_taken_step_;
  FillOutcome pending_;   // while the slot is pending
  double next_copy_ = 0;  // seconds of the clock; not before
  int64_t taken_ = 0;
  int64_t requests_served_ = 0;
  RateLimitedLog not_taken_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_TRAINER_SIDE_H_
