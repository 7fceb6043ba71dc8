#ifndef PTQWATCH_TRAINER_STAGING_H_
#define PTQWATCH_TRAINER_STAGING_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "ptqwatch/execution_context.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/step_info.h"
#include "ptqwatch/subject.h"
#include "snapshot/device_stream.h"
#include "snapshot/optimizer_staging.h"
#include "snapshot/tensor_table.h"
#include "trainer/lr_tracker.h"

namespace ptqwatch::internal {

/// All parameters and buffers as they were at one step boundary, in the monitor's own memory.
struct Snapshot {
  StepInfo info;
  LrState lr;
  SnapshotTrigger trigger = SnapshotTrigger::kUnknown;
  double unix_seconds = 0;
  double stall_seconds = 0;         ///< what taking it cost the training thread
  std::vector<at::Tensor> tensors;  ///< one per entry of the live TensorTable, contiguous
  OptimizerState optimizer;
};

/// One slot between the trainer's thread and the monitor thread: Free -> Filled -> Loading -> Free.
/// The trainer's thread moves it to Filled, the monitor thread does the rest, and neither ever
/// waits for the other.
class Staging {
 public:
  /// Allocates and touches the buffers. `live` is what later snapshots are compared with.
  Staging(const TensorTable& live, std::shared_ptr<DeviceStream> stream,
          OptimizerStaging optimizer = {});
  /// Waits for a copy that is still queued on the device.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  bool free() const noexcept { return state_.load(std::memory_order_acquire) == State::kFree; }

  /// Trainer's thread. Fills the slot when it is free. Fields of the snapshot other than tensors,
  /// optimizer and stall come from `header`.
  SnapshotResult TryFill(const Subject& subject, const Snapshot& header, Clock& clock) noexcept;

  /// Monitor thread. The filled snapshot, or null; from then on the slot is Loading.
  const Snapshot* BeginLoading() noexcept;
  /// Monitor thread. REQUIRES: BeginLoading gave a snapshot, which is not used any more.
  void Release() noexcept { state_.store(State::kFree, std::memory_order_release); }

  /// Why the last TryFill gave kSkippedMismatch or kFailed. Trainer's thread.
  const std::string& problem() const noexcept { return problem_; }
  int64_t bytes() const { return bytes_; }  ///< without those of optimizer()
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
  /// Empty when `tensors` match; leaves the canonical ones in sources_.
  std::string Compare(const std::vector<NamedTensor>& tensors);

  std::atomic<State> state_{State::kFree};
  Snapshot slot_;
  std::vector<Expected> expected_;  // one per listed tensor
  std::vector<int> index_;          // listed tensor -> entry
  std::vector<at::Tensor> sources_;
  std::shared_ptr<DeviceStream> stream_;
  OptimizerStaging optimizer_;
  std::string problem_;
  int64_t bytes_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAINER_STAGING_H_
