#ifndef PTQWATCH_STAGING_WORKER_LINK_H_
#define PTQWATCH_STAGING_WORKER_LINK_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "handover/page.h"
#include "ptqwatch/event.h"
#include "ptqwatch/status.h"
#include "ptqwatch/subject.h"
#include "staging/shared_memory.h"
#include "staging/shared_optimizer.h"
#include "staging/slot_filler.h"

namespace ptqwatch::internal {

/// The measuring half's end of a monitor whose halves are two processes (ProcessTrainer is the
/// other end): the memory that the trainer's process fills, and its signals. Thread-safe, apart
/// from Run.
class WorkerLink {
 public:
  struct Options {
    int memory = -1;   ///< descriptor of the shared memory
    int wake = -1;     ///< descriptor that is readable when the trainer has left something
    int trainer = -1;  ///< pidfd of the trainer; -1: the kernel has none
    pid_t process = 0;
    int64_t bytes = 0;
    std::vector<SharedTensor> layout = {};
    OptimizerLayout optimizer = {};
    /// Why an earlier worker ended; empty: this is the first. Announced in the journal.
    std::string replaces = {};
    /// A worker whose losses closure gives no sign of life for this long ends, so that another one
    /// can take its place.
    std::chrono::milliseconds longest_silence{0};
  };
  /// A started monitor. Run calls the functions, until Monitor::Stop.
  struct Measurer {
    std::function<void()> wake;
    /// Seconds since a measurement in progress last gave a sign of life; 0 without a measurement.
    std::function<double()> silence;
    std::function<void(Event::Kind kind, Severity severity, std::string message)> announce;
    /// Its CPU time is charged to the monitor's budget. `process` 0: it does not serve.
    std::function<void(const ServerStatus& server, pid_t process)> set_server;
  };

  /// Takes the descriptors.
  static absl::StatusOr<std::unique_ptr<WorkerLink>> Open(const Options& options);
  ~WorkerLink();

  /// Keeps the memory mapped.
  std::shared_ptr<Page> page() { return {memory_, &page_}; }
  pid_t trainer() const { return options_.process; }
  /// The tensors of the model as of the snapshot in the slot. They must not outlive page().
  std::vector<NamedTensor> LiveTensors() const { return memory_->Tensors(options_.layout); }
  /// The optimizer as of the snapshot in the slot; nullopt if the trainer shares none.
  std::optional<OptimizerView> Optimizer() const {
    return optimizer_ ? optimizer_->Read() : std::nullopt;
  }
  /// Makes the trainer, which is inside finish(), fill the slot, and waits for it.
  FillOutcome TakeLast();
  /// Once, when the monitor has started: lets the trainer take snapshots.
  void Connect(Measurer measurer);

  enum class End {
    kStopped,
    kTrainerGone,
    kSilent,  ///< the losses closure does not return
  };
  /// Passes the trainer's signals to the monitor, once there is one, until something ends that.
  End Run();
  /// Any thread: the worker has sent an alarm to the trainer.
  void CountAlarm() { page_.alarms.fetch_add(1, std::memory_order_release); }
  /// Any thread: makes Run return.
  void Stop();

 private:
  WorkerLink(const Options& options, SharedMemory memory);
  void PassOnServer(const Measurer& measurer);
  bool TrainerEnded() const;
  // Whether the trainer has left something.
  bool Wait(std::chrono::milliseconds longest) const;

  const Options options_;
  const std::shared_ptr<const SharedMemory> memory_;
  Page& page_;
  const std::optional<SharedOptimizer> optimizer_;
  const int stop_;
  std::atomic<bool> stopped_{false};
  uint64_t server_seen_ = 0;  // used by Run
  mutable Mutex mutex_;
  std::shared_ptr<const Measurer> measurer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STAGING_WORKER_LINK_H_
