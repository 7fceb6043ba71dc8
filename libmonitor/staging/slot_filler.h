#ifndef PTQWATCH_STAGING_SLOT_FILLER_H_
#define PTQWATCH_STAGING_SLOT_FILLER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/status.h"
#include "ptqwatch/subject.h"
#include "snapshot/device_stream.h"
#include "snapshot/optimizer_staging.h"
#include "snapshot/snapshot.h"
#include "snapshot/tensor_table.h"
#include "staging/slot.h"

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

/// Fills a slot with the live tensors. For the trainer's thread.
class SlotFiller {
 public:
  /// Later snapshots must match `live`. Makes a trial copy. With `beside`, parameters are copied
  /// beside training if the device supports it. `slot` must outlive this.
  SlotFiller(const TensorTable& live, Slot* slot, std::shared_ptr<DeviceStream> stream,
             OptimizerStaging optimizer = {}, bool beside = false);
  /// Waits for a copy that is still queued on the device.
  ~SlotFiller();
  SlotFiller(const SlotFiller&) = delete;
  SlotFiller& operator=(const SlotFiller&) = delete;

  /// Called with the optimizer of each snapshot, before the slot is filled.
  void ShareOptimizer(std::function<void(const OptimizerState&)> share) {
    share_ = std::move(share);
  }

  /// Copies the live tensors and the optimizer into the slot if it is free. `last`: no further
  /// update of the parameters follows.
  FillOutcome TryFill(const Subject& subject, const SnapshotHeader& header, Clock& clock,
                      bool last = false) noexcept;

  /// Whether a copy is pending.
  bool pending() const noexcept { return pending_; }
  /// Makes the next update of the parameters wait for a pending copy, which then fills the slot.
  absl::Status Gate() noexcept;
  /// Call if an update was queued without Gate: the pending copy may be torn.
  void Discard() noexcept;

  const OptimizerStaging& optimizer() const { return optimizer_; }

 private:
  /// Required properties of a tensor in every snapshot.
  struct Expected {
    std::string name;
    std::vector<int64_t> sizes;
    at::ScalarType dtype;
    at::Device device;
    PartPlace place;
  };
  /// Puts the canonical tensors into sources_; FailedPrecondition if `tensors` do not match.
  absl::Status Match(const std::vector<NamedTensor>& tensors);
  // True if the copy is pending.
  absl::StatusOr<bool> CopyLiveState(const Subject& subject, bool beside);
  absl::StatusOr<bool> CopyTensors(bool beside);
  void ForgetSources() noexcept;

  Slot& slot_;
  std::vector<Expected> expected_;  // one for each listed tensor
  std::vector<int> index_;          // listed tensor -> entry
  std::vector<at::Tensor> sources_;
  std::vector<int> parameters_;  // entries; copied beside training if requested
  std::vector<int> buffers_;     // entries that a forward pass may change
  const bool beside_;
  std::shared_ptr<DeviceStream> stream_;
  OptimizerStaging optimizer_;
  std::function<void(const OptimizerState&)> share_;
  bool pending_ = false;
};

/// Zeros of the sizes, dtypes and devices of the entries of `live`: the memory of a slot.
std::vector<at::Tensor> MakeSlotTensors(const TensorTable& live);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STAGING_SLOT_FILLER_H_
