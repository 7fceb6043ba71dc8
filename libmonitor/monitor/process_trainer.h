#ifndef PTQWATCH_MONITOR_PROCESS_TRAINER_H_
#define PTQWATCH_MONITOR_PROCESS_TRAINER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/process_end.h"
#include "monitor/trainer_options.h"
#include "monitor/trainer_side.h"
#include "ptqwatch/options.h"
#include "ptqwatch/step_info.h"
#include "ptqwatch/subject.h"
#include "staging/manifest.h"
#include "staging/shard_address.h"
#include "staging/shared_memory.h"
#include "staging/shared_optimizer.h"
#include "staging/slot.h"
#include "staging/slot_filler.h"

namespace ptqwatch::internal {

/// The trainer's half of a monitor whose measuring half is a process of its own (WorkerLink is the
/// other end). Starts no thread and runs no model. In a child of fork() it does nothing.
class ProcessTrainer {
 public:
  /// Copies the live tensors of `subject` into new shared memory and, if curvature is measured, the
  /// optimizer's second moments; only Subject::LiveTensors and Subject::Optimizer are called.
  /// Tensors on a GPU are copied to host memory. Of the options, `schedule`, `curvature.enabled`,
  /// `max_overhead`, `duty_cycle`, `snapshot_dtype` and `clock` are used. `manifest` says what else
  /// the worker is told; its tensors and schedule are added. If its `shard` is set, the tensors may
  /// be parts, and the process that measures on this host is told where the memory is. Errors:
  /// FailedPrecondition for tensors that cannot be watched; those of OptimizerStaging::Create;
  /// ResourceExhausted if memory is short.
  static absl::StatusOr<std::unique_ptr<ProcessTrainer>> Create(std::unique_ptr<Subject> subject,
                                                                const MonitorOptions& options,
                                                                Manifest manifest);
  ~ProcessTrainer();
  ProcessTrainer(const ProcessTrainer&) = delete;
  ProcessTrainer& operator=(const ProcessTrainer&) = delete;

  /// As Monitor::OnStep. Never waits for the worker.
  void OnStep(const StepInfo& info) noexcept {
    if (process_.here()) side_->OnStep(info);
  }
  /// Trainer's thread, repeatedly while it waits in finish(): takes a snapshot of the last step if
  /// the worker asks for one.
  void ServeFinish() noexcept;
  /// The same for a rank that only copies its part of a model: also returns how the process that
  /// measures has finished the last step, once it has; the report's number is on the page.
  std::optional<absl::Status> FollowFinish() noexcept;

  /// Wakes the worker, for a request. Any thread.
  void WakeWorker() const noexcept;

  /// Call it when the worker has ended: until the next one works, no snapshot is taken. Any thread.
  void WorkerEnded() noexcept;

  /// At the end: the process that measures cannot find this rank any more. Any thread.
  void Withdraw() noexcept { address_.Withdraw(); }

  int64_t bytes() const { return memory_.bytes(); }
  Page& page() const { return page_; }
  /// The descriptor of the memory.
  int file() const { return memory_.file(); }
  /// A descriptor (eventfd) that becomes readable when the worker has something to do.
  int wake() const { return wake_; }
  /// Snapshots that ended with a worker and are not measured. 0 in a child of fork(), as alarms().
  int64_t lost() const { return process_.here() ? page_.slot.lost() : 0; }
  /// Alarms that workers have sent so far.
  int64_t alarms() const { return process_.here() ? page_.alarms.load() : 0; }

 private:
  ProcessTrainer(std::unique_ptr<Subject> subject, SharedMemory memory);
  // Makes the slot and what fills it, in the shared memory.
  absl::Status Prepare(const TensorTable& live, const Manifest& manifest,
                       const TrainerOptions& options);

  const ProcessMark process_;
  const SharedMemory memory_;
  Page& page_;
  std::optional<SharedOptimizer> optimizer_;
  const int wake_;
  const std::unique_ptr<Subject> subject_;
  std::optional<Slot> slot_;
  std::optional<SlotFiller> filler_;
  std::optional<TrainerSide> side_;
  ShardAddress address_;  // if the model is sharded
  int64_t followed_ = 0;  // number of the newest finish that FollowFinish has returned
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_PROCESS_TRAINER_H_
