#ifndef PTQWATCH_HANDOVER_TRAINER_BOARD_H_
#define PTQWATCH_HANDOVER_TRAINER_BOARD_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "handover/phase_changes.h"
#include "handover/step_checks.h"
#include "handover/step_times.h"
#include "ptqwatch/status.h"
#include "ptqwatch/step_info.h"

namespace ptqwatch::internal {

/// The part of a MonitorStatus that the trainer's half of a monitor writes. One thread at a time
/// writes; any thread of any process that has this memory may read at any time. Values may be one
/// step apart.
class TrainerBoard {
 public:
  /// At each step. `now`: seconds of the monotonic clock.
  void OnStep(const StepInfo& info, LrPhase phase, double now) noexcept;
  void OnSnapshot(SnapshotResult result, double stall_seconds) noexcept;
  /// A snapshot that was taken, and counts as that, has turned out to be incomplete.
  void OnIncomplete() noexcept;
  /// Any thread.
  void OnConcurrentStep() noexcept {
    snapshots_[static_cast<size_t>(SnapshotResult::kSkippedConcurrent)].fetch_add(1, kRelaxed);
  }
  StepTimes& step_times() noexcept { return step_times_; }
  StepChecks& step_checks() noexcept { return step_checks_; }
  PhaseChanges& phase_changes() noexcept { return phase_changes_; }

  /// The newest step; nullopt before the first.
  std::optional<int64_t> step() const noexcept {
    return stepped() ? std::optional(step_.load(kRelaxed)) : std::nullopt;
  }
  /// Mean of the newest 1000 to 2000 steps, or of all if there are fewer; 0 before the second step.
  double seconds_a_step() const noexcept { return seconds_a_step_.load(kRelaxed); }
  /// Monotonic time of the first step; 0 before it.
  double first_step_seconds() const noexcept { return first_step_seconds_.load(kRelaxed); }
  double stall_seconds() const noexcept { return stall_seconds_.load(kRelaxed); }
  /// Due snapshots in a row that could not be copied.
  int64_t not_copied_in_a_row() const noexcept { return not_copied_in_a_row_.load(kRelaxed); }
  /// Sets the members that the trainer's half knows, at monotonic time `now`, which is
  /// `unix_seconds` of wall time.
  void AddTo(MonitorStatus& status, double now, double unix_seconds) const;

 private:
  static constexpr auto kRelaxed = std::memory_order_relaxed;
  static constexpr int64_t kNoTokens = INT64_MIN;
  bool stepped() const noexcept { return stepped_.load(std::memory_order_acquire); }

  struct StepMark {
    int64_t steps = 0;
    double seconds = 0;
  };
  // Only the caller of OnStep reads and writes the marks.
  StepMark recent_from_;
  StepMark newest_mark_;

  std::atomic<bool> stepped_{false};
  std::atomic<int64_t> step_{0};
  std::atomic<int64_t> steps_total_{0};
  std::atomic<double> first_step_seconds_{0};
  std::atomic<double> last_step_seconds_{0};
  std::atomic<double> seconds_a_step_{0};
  std::atomic<double> learning_rate_{0};
  std::atomic<int64_t> tokens_{kNoTokens};
  std::atomic<bool> has_loss_{false};
  std::atomic<double> loss_{0};
  std::atomic<LrPhase> phase_{LrPhase::kUnknown};
  std::array<std::atomic<int64_t>, kSnapshotResults> snapshots_{};
  std::array<std::atomic<int64_t>, kStallBucketSeconds.size() + 1> stall_buckets_{};
  std::atomic<double> stall_seconds_{0};
  std::atomic<int64_t> not_copied_in_a_row_{0};
  StepTimes step_times_;
  StepChecks step_checks_;
  PhaseChanges phase_changes_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HANDOVER_TRAINER_BOARD_H_
