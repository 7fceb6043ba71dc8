#ifndef PTQWATCH_MONITOR_PROCESS_TRAINER_H_
#define PTQWATCH_MONITOR_PROCESS_TRAINER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/process_end.h"
#include "handover/shared_memory.h"
#include "handover/shared_optimizer.h"
#include "monitor/run_core.h"
#include "monitor/trainer_side.h"
#include "ptqwatch/options.h"
#include "ptqwatch/step_info.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::internal {

/// The trainer's part of a monitor that works in a process of its own (WorkerLink is the other
/// part; RemoteTrainer explains the division). Starts no thread and runs no model. In a child of
/// fork() it does nothing.
class ProcessTrainer {
 public:
  /// Copies the live tensors of `subject` into new shared memory and, if curvature is measured, the
  /// optimizer's second moments; only Subject::LiveTensors and Subject::Optimizer are called.
  /// Tensors on a GPU are copied to host memory. Of the options, `schedule`, `curvature.enabled`,
  /// `max_overhead`, `duty_cycle` and `clock` are used. Errors: FailedPrecondition for tensors that
  /// cannot be watched; those of OptimizerStaging::Create; ResourceExhausted if memory is short.
  static absl::StatusOr<std::unique_ptr<ProcessTrainer>> Create(std::unique_ptr<Subject> subject,
                                                                const MonitorOptions& options);
  ~ProcessTrainer();
  ProcessTrainer(const ProcessTrainer&) = delete;
  ProcessTrainer& operator=(const ProcessTrainer&) = delete;

  /// As Monitor::OnStep. Never waits for the worker: a step for which the worker has not left room
  /// in the ring is ignored and counted.
  void OnStep(const StepInfo& info) noexcept;
  /// Trainer's thread, repeatedly while it waits in finish(): takes a snapshot of the last step if
  /// the worker asks for one, and passes on a last step that found no room.
  void ServeFinish() noexcept;

  /// Call it when the worker has ended: until the next one works, no snapshot is taken. Any thread.
  void WorkerEnded() noexcept;

  const std::vector<SharedTensor>& layout() const { return layout_; }
  const OptimizerLayout& optimizer() const { return optimizer_layout_; }
  int64_t bytes() const { return bytes_; }
  SharedPage& page() const { return page_; }
  /// The descriptor of the memory.
  int file() const { return memory_.file(); }
  /// A descriptor (eventfd) that becomes readable when the worker has something to do.
  int wake() const { return wake_; }
  std::optional<int64_t> last_step() const;
  int64_t ignored() const { return ignored_total_.load(std::memory_order_relaxed); }
  /// Snapshots that ended with a worker and are not measured. 0 in a child of fork(), as alarms().
  int64_t lost() const { return process_.here() ? page_.lost.load() : 0; }
  /// Alarms that workers have sent so far.
  int64_t alarms() const { return process_.here() ? page_.alarms.load() : 0; }

 private:
  ProcessTrainer(std::unique_ptr<Subject> subject, const MonitorOptions& options,
                 SharedMemory memory, std::vector<SharedTensor> layout, OptimizerLayout optimizer,
                 int64_t bytes);
  void Step(const StepInfo& info) noexcept;
  bool HasRoom() const noexcept;
  void WakeWorker() noexcept;

  const ProcessMark process_;
  const SharedMemory memory_;
  SharedPage& page_;
  const std::vector<SharedTensor> layout_;
  const OptimizerLayout optimizer_layout_;
  std::optional<SharedOptimizer> optimizer_;
  const int64_t bytes_;
  const int wake_;
  RunCore core_;
  std::optional<TrainerSide> side_;  // made by the first step
  std::atomic_flag entered_;
  int64_t ignored_ = 0;  // since the last record
  std::atomic<int64_t> ignored_total_{0};
  std::optional<StepInfo> unsent_;  // the newest step, if it was ignored
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_PROCESS_TRAINER_H_
