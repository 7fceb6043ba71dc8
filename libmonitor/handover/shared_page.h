#ifndef PTQWATCH_HANDOVER_SHARED_PAGE_H_
#define PTQWATCH_HANDOVER_SHARED_PAGE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "handover/shared_server.h"
#include "handover/staging.h"
#include "ptqwatch/status.h"
#include "ptqwatch/step_info.h"
#include "trainer/lr_tracker.h"
#include "trainer/step_outcome.h"
#include "trainer/trainer_switches.h"

namespace ptqwatch::internal {

/// A step that the trainer has done.
struct StepRecord {
  StepInfo info = {};
  StepOutcome outcome = {};
};

/// The start of the memory that a trainer shares with the process of its monitor (the worker). The
/// weights of a snapshot follow. Neither process ever waits for a lock of the other: there are only
/// atomics, and the ring has one writer and one reader. A worker that dies leaves nothing behind
/// that the trainer would wait for.
struct SharedPage {
  /// A power of two.
  static constexpr uint64_t kRecords = 8192;
  static constexpr uint64_t kVersion = 0x70747177'00000002;

  explicit SharedPage(int64_t every) : switches(every) {}

  uint64_t version = kVersion;
  TrainerSwitches switches;  ///< the worker writes, the trainer reads
  SharedSlotState slot;
  StepRecord sent;  ///< of snapshot `sent_number`; without a result if finish() has taken it
  std::atomic<int64_t> sent_number{0};
  /// The workers': the snapshot that was begun a second time, after a worker had ended.
  std::atomic<int64_t> again{0};
  std::atomic<int64_t> lost{0};  ///< snapshots that ended with a worker, and are not measured
  /// Alarms that the worker has sent to the trainer.
  std::atomic<int64_t> alarms{0};

  /// The learning rate's state that an earlier attempt left. The worker writes it once, before
  /// `lr_known`.
  LrTracker lr;
  std::atomic<bool> lr_known{false};

  /// Snapshots of the last step: the worker asks for them while the trainer is inside finish().
  std::atomic<int64_t> asked{0};
  std::atomic<int64_t> answered{0};  ///< stored after the result
  std::atomic<SnapshotResult> result{SnapshotResult::kFailed};
  std::atomic<double> stall_seconds{0};

  SharedServer server;

  alignas(64) std::atomic<uint64_t> written{0};  ///< the trainer's
  alignas(64) std::atomic<uint64_t> read{0};     ///< the worker's
  std::array<StepRecord, kRecords> records;
};
static_assert(std::is_trivially_copyable_v<StepRecord>);
static_assert(std::is_trivially_copyable_v<LrTracker>);
static_assert(std::atomic<SlotState>::is_always_lock_free);
static_assert(std::atomic<double>::is_always_lock_free);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HANDOVER_SHARED_PAGE_H_
