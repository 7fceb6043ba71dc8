#ifndef PTQWATCH_TRAINER_STAGING_H_
#define PTQWATCH_TRAINER_STAGING_H_

#include <atomic>
#include <memory>
#include <string>
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

/// What became of an attempt to take a snapshot.
struct FillOutcome {
  SnapshotResult result = SnapshotResult::kFailed;
  double stall_seconds = 0;  ///< how long the attempt held up the training thread
  std::string problem;       ///< of kSkippedMismatch and kFailed
};

/// One slot between the trainer's thread and the monitor thread: Free -> Filled -> Loading -> Free.
/// The trainer's thread fills it and the monitor thread empties it. Neither waits for the other.
class Staging {
 public:
  /// Allocates and touches the buffers. Later snapshots must match `live`.
  Staging(const TensorTable& live, std::shared_ptr<DeviceStream> stream,
          OptimizerStaging optimizer = {});
  /// Waits for a copy that is still queued on the device.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  bool free() const noexcept { return state_.load(std::memory_order_acquire) == State::kFree; }

  /// Whether a snapshot waits for the monitor thread.
  bool filled() const noexcept { return state_.load(std::memory_order_acquire) == State::kFilled; }

  /// Trainer's thread. Copies the live tensors and the optimizer into the slot if it is free.
  FillOutcome TryFill(const Subject& subject, const SnapshotHeader& header, Clock& clock) noexcept;

  /// Monitor thread. The filled snapshot, or null. A filled slot is Loading from here on.
  const Snapshot* BeginLoading() noexcept;
  /// Monitor thread. REQUIRES: BeginLoading gave a snapshot, which is no longer used.
  void Release() noexcept { state_.store(State::kFree, std::memory_order_release); }

  int64_t bytes() const { return bytes_; }  ///< without the optimizer's
  const OptimizerStaging& optimizer() const { return optimizer_; }

 private:
  enum class State { kFree, kFilled, kLoading };
  /// What every snapshot must look like.
  struct Expected {
    std::string name;
    std::vector<int64_t> sizes;
    at::ScalarType dtype;
    at::Device device;
  };
  /// Puts the canonical tensors into sources_; FailedPrecondition if `tensors` do not match.
  absl::Status Match(const std::vector<NamedTensor>& tensors);
  absl::Status CopyLiveState(const Subject& subject);

  std::atomic<State> state_{State::kFree};
  Snapshot slot_;
  std::vector<Expected> expected_;  // one for each listed tensor
  std::vector<int> index_;          // listed tensor -> entry
  std::vector<at::Tensor> sources_;
  std::shared_ptr<DeviceStream> stream_;
  OptimizerStaging optimizer_;
  int64_t bytes_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAINER_STAGING_H_
