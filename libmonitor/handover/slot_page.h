#ifndef PTQWATCH_HANDOVER_SLOT_PAGE_H_
#define PTQWATCH_HANDOVER_SLOT_PAGE_H_

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "handover/snapshot_header.h"

namespace ptqwatch::internal {

enum class SlotState : int {
  kFree,
  kPending,  ///< the copy is not finished
  kFilled,
  kLoading,
};

/// The state of the slot for one snapshot: Free -> Pending -> Filled -> Loading -> Free. The
/// trainer's half fills it and the measuring half empties it; neither waits for the other.
/// Attempts to fill it are counted from 1, and a snapshot has the number of its attempt.
class SlotPage {
 public:
  static constexpr int64_t kNoStep = INT64_MIN;

  /// Trainer's half: takes the slot if it is free. From then on, its tensors are those of the new
  /// attempt.
  bool Claim() noexcept {
    SlotState free = SlotState::kFree;
    if (!state_.compare_exchange_strong(free, SlotState::kPending)) return false;
    attempts_.fetch_add(1);
    return true;
  }
  /// Trainer's half: passes on the slot that it has claimed and filled.
  void Offer() noexcept {
    taken_step_.store(header.info.step, std::memory_order_relaxed);
    filled_.store(attempts_.load());
    state_.store(SlotState::kFilled);
  }
  /// Trainer's half: gives up the slot that it has claimed.
  void Abandon() noexcept { state_.store(SlotState::kFree); }

  /// Measuring half: takes the snapshot, if there is one.
  bool BeginLoading() noexcept {
    if (!filled()) return false;
    // First, so that a snapshot that ends this process is known to have been begun.
    begun_.store(filled_.load());
    state_.store(SlotState::kLoading);
    return true;
  }
  /// Measuring half: ends loading.
  void Release() noexcept { state_.store(SlotState::kFree); }
  /// Measuring half: the snapshot that was begun last is published or given up. Idempotent.
  void Done() noexcept { done_.store(begun_.load()); }
  /// Measuring half: gives up the snapshot that the slot holds, as if it had not been taken.
  void Drop() noexcept {
    if (!BeginLoading()) return;
    taken_step_.store(kNoStep);
    dropped_.store(begun_.load());
    Done();
    Release();
  }
  /// Measuring half, before anything else, if an earlier process of it has ended: a snapshot that
  /// it had begun is measured once more, if the slot still holds it, and otherwise counts as lost.
  void TakeOver() noexcept;

  SlotState state() const noexcept { return state_.load(std::memory_order_acquire); }
  bool free() const noexcept { return state() == SlotState::kFree; }
  bool filled() const noexcept { return state() == SlotState::kFilled; }
  int64_t attempts() const noexcept { return attempts_.load(); }
  int64_t newest() const noexcept { return filled_.load(); }  ///< number of the newest snapshot
  int64_t begun() const noexcept { return begun_.load(); }
  int64_t done() const noexcept { return done_.load(); }
  /// Number of the newest snapshot that was dropped.
  int64_t dropped() const noexcept { return dropped_.load(); }
  /// Snapshots that ended with a process of the measuring half.
  int64_t lost() const noexcept { return lost_.load(); }
  /// Whether the newest snapshot is one of this step.
  bool has_taken(int64_t step) const noexcept {
    return taken_step_.load(std::memory_order_relaxed) == step;
  }

  /// The header of the snapshot in the slot; the half that has the slot writes it.
  SnapshotHeader header;
  double stall_seconds = 0;  ///< how long OnStep blocked the trainer's thread

 private:
  std::atomic<SlotState> state_{SlotState::kFree};
  std::atomic<int64_t> attempts_{0};
  std::atomic<int64_t> filled_{0};
  std::atomic<int64_t> begun_{0};
  std::atomic<int64_t> done_{0};
  std::atomic<int64_t> dropped_{0};
  std::atomic<int64_t> again_{0};  // the newest that was begun a second time
  std::atomic<int64_t> lost_{0};
  std::atomic<int64_t> taken_step_{kNoStep};
};
static_assert(std::is_trivially_copyable_v<SnapshotHeader>);
static_assert(std::atomic<SlotState>::is_always_lock_free);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HANDOVER_SLOT_PAGE_H_
