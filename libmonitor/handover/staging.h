#ifndef PTQWATCH_HANDOVER_STAGING_H_
#define PTQWATCH_HANDOVER_STAGING_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/status.h"
#include "ptqwatch/subject.h"
#include "snapshot/device_stream.h"
#include "snapshot/optimizer_staging.h"
#include "snapshot/snapshot.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {

/// The outcome of an attempt to take a snapshot.
struct FillOutcome {
  SnapshotResult result = SnapshotResult::kFailed;
  bool pending = false;      ///< kTaken: only if Gate is called before the parameters change
  double stall_seconds = 0;  ///< how long the attempt delayed the training thread
  std::string problem;       ///< for kSkippedMismatch and kFailed

  /// Omits the text if memory is short.
  static FillOutcome NotTaken(SnapshotResult result, double stall_seconds,
                              std::string_view problem) noexcept;
};

enum class SlotState : int {
  kFree,
  kPending,  ///< a copy is not finished
  kSent,     ///< filled by another process, which has not said yet by which step
  kFilled,
  kLoading,
};

/// The state of a slot in memory that two processes share. Attempts are counted from 1.
struct SharedSlotState {
  std::atomic<SlotState> slot{SlotState::kFree};
  std::atomic<int64_t> taken{0};  ///< the newest attempt to fill the slot; its tensors are there
  std::atomic<int64_t> begun{0};  ///< the newest one that a monitor has begun to load
  std::atomic<int64_t> done{0};   ///< the newest one whose report is published
};

/// A slot in memory that two processes share. The trainer's process fills it, and the monitor's
/// process takes the snapshots from it.
struct SharedSlot {
  SharedSlotState* state = nullptr;      ///< null: the slot is not shared
  std::vector<at::Tensor> tensors = {};  ///< one for each entry of the table, contiguous
  /// Trainer's process: called with the optimizer of each snapshot, before the slot is Sent.
  std::function<void(const OptimizerState&)> send = {};
  /// Monitor's process: makes the trainer's process fill the slot, and waits for it.
  std::function<FillOutcome()> fill = {};
};

/// One slot between the trainer's thread and the monitor thread: Free -> Filled -> Loading -> Free.
/// The trainer's thread fills it and the monitor thread empties it. Neither waits for the other.
/// It is Pending between Free and Filled while it is filled, and while a copy is made beside
/// training. A shared slot is Sent between Pending and Filled.
class Staging {
 public:
  /// Allocates and touches the buffers. Later snapshots must match `live`. With `beside`,
  /// parameters are copied beside training if the device supports it. A slot that is shared has
  /// its buffers already; copies beside training do not go there.
  Staging(const TensorTable& live, std::shared_ptr<DeviceStream> stream,
          OptimizerStaging optimizer = {}, bool beside = false, SharedSlot shared = {});
  /// Waits for a copy that is still queued on the device.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  bool free() const noexcept { return state_.load(std::memory_order_acquire) == SlotState::kFree; }

  /// Whether a snapshot waits for the monitor thread.
  bool filled() const noexcept {
    return state_.load(std::memory_order_acquire) == SlotState::kFilled;
  }

  /// Trainer's thread. Copies the live tensors and the optimizer into the slot if it is free.
  /// `last`: no further update of the parameters follows.
  FillOutcome TryFill(const Subject& subject, const SnapshotHeader& header, Clock& clock,
                      bool last = false) noexcept;

  /// Monitor's process: says which snapshot the trainer's process has filled a shared slot with.
  /// `subject` has the optimizer as it was then. False if the slot holds none.
  bool Accept(const Subject& subject, const SnapshotHeader& header, double stall_seconds) noexcept;

  /// Trainer's thread. Whether a copy is pending. In a shared slot none ever is, and the monitor's
  /// process may see the trainer's being made.
  bool pending() const noexcept {
    return shared_.state == nullptr &&
           state_.load(std::memory_order_relaxed) == SlotState::kPending;
  }
  /// Trainer's thread. Makes the next update of the parameters wait for a pending copy, which then
  /// fills the slot.
  absl::Status Gate() noexcept;
  /// Trainer's thread. Call if an update was queued without Gate: the pending copy may be torn.
  void Discard() noexcept;

  /// Monitor thread. The filled snapshot, or null. Moves a filled slot to Loading.
  const Snapshot* BeginLoading() noexcept;
  /// Monitor thread. REQUIRES: BeginLoading returned a snapshot, which is no longer used.
  void Release() noexcept { state_.store(SlotState::kFree, std::memory_order_release); }
  /// Monitor thread. Call it when the report of the snapshot that was loaded last is published. In
  /// a process that ends before, a shared slot's snapshot counts as not measured.
  void Published() noexcept;

  int64_t bytes() const { return bytes_; }  ///< without the optimizer's
  const OptimizerStaging& optimizer() const { return optimizer_; }

 private:
  /// Required properties of a tensor in every snapshot.
  struct Expected {
    std::string name;
    std::vector<int64_t> sizes;
    at::ScalarType dtype;
    at::Device device;
  };
  /// Puts the canonical tensors into sources_; FailedPrecondition if `tensors` do not match.
  absl::Status Match(const std::vector<NamedTensor>& tensors);
  // Returns true if the copy is pending.
  absl::StatusOr<bool> CopyLiveState(const Subject& subject, bool beside);
  absl::StatusOr<bool> CopyTensors(bool beside);
  void ForgetSources() noexcept;

  const SharedSlot shared_;
  std::atomic<SlotState> own_state_{SlotState::kFree};
  std::atomic<SlotState>& state_;
  Snapshot slot_;
  std::vector<Expected> expected_;  // one for each listed tensor
  std::vector<int> index_;          // listed tensor -> entry
  std::vector<at::Tensor> sources_;
  std::vector<int> parameters_;  // entries; copied beside training if requested
  std::vector<int> buffers_;     // entries that a forward pass may change
  const bool beside_;
  std::shared_ptr<DeviceStream> stream_;
  OptimizerStaging optimizer_;
  int64_t bytes_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HANDOVER_STAGING_H_
