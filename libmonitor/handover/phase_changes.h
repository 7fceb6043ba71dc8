#ifndef PTQWATCH_HANDOVER_PHASE_CHANGES_H_
#define PTQWATCH_HANDOVER_PHASE_CHANGES_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "ptqwatch/step_info.h"

namespace ptqwatch::internal {

/// Passes changes of the learning-rate phase from OnStep to the monitor thread. One writer and one
/// reader; neither waits nor allocates. While all slots are taken, a change is deferred: phases
/// that come and go meanwhile are lost, but the last one is not.
class PhaseChanges {
 public:
  static constexpr uint64_t kSlots = 8;

  struct Change {
    LrPhase phase = LrPhase::kUnknown;
    int64_t step = 0;  ///< first step of the phase
  };

  /// Called by OnStep with the phase at this step. True if the reader has something to read. An
  /// unknown phase is ignored.
  bool Note(LrPhase phase, int64_t step) noexcept {
    if (phase == last_ || phase == LrPhase::kUnknown) return false;
    const uint64_t written = written_.load(std::memory_order_relaxed);
    if (written - read_.load(std::memory_order_acquire) == kSlots) return false;
    slots_[written % kSlots] = {phase, step};
    written_.store(written + 1, std::memory_order_release);
    last_ = phase;
    return true;
  }

  /// Called by the monitor thread: the oldest change that it has not read.
  std::optional<Change> Next() noexcept {
    const uint64_t read = read_.load(std::memory_order_relaxed);
    if (read == written_.load(std::memory_order_acquire)) return std::nullopt;
    const Change change = slots_[read % kSlots];
    read_.store(read + 1, std::memory_order_release);
    return change;
  }

 private:
  std::array<Change, kSlots> slots_{};
  std::atomic<uint64_t> written_{0};
  std::atomic<uint64_t> read_{0};
  LrPhase last_ = LrPhase::kUnknown;  // used by the writer
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HANDOVER_PHASE_CHANGES_H_
