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
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "handover/page.h"
#include "ptqwatch/event.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/status.h"
#include "ptqwatch/subject.h"
#include "staging/manifest.h"
#include "staging/shards.h"
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
    /// Why an earlier worker ended; empty: this is the first. Announced in the journal.
    std::string replaces = {};
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

  /// Takes the descriptors. FailedPrecondition if the memory is not a trainer's of this version.
  static absl::StatusOr<std::unique_ptr<WorkerLink>> Open(const Options& options);
  ~WorkerLink();

  /// If the model is sharded, waits for the other ranks, whose parts LiveTensors and Optimizer then
  /// include, unless another host measures (Shards::relay). Call it first. Errors are those of
  /// Shards::Open.
  absl::Status Gather();
  /// Any thread: nothing will be measured, which other hosts may wait for.
  void TellFailure(std::string_view why) {
    if (shards_ != nullptr) shards_->Fail(why);
  }

  /// Keeps the memory mapped.
  std::shared_ptr<Page> page() { return {memory_, &page_}; }
  const Manifest& manifest() const { return manifest_; }
  pid_t trainer() const { return options_.process; }
  const std::string& replaces() const { return options_.replaces; }
  /// The tensors of the model as of the snapshot in the slot. They must not outlive page().
  std::vector<NamedTensor> LiveTensors() const {
    return shards_ != nullptr ? shards_->tensors() : memory_->Tensors(manifest_.layout);
  }
  /// The optimizer as of the snapshot in the slot; nullopt if the trainer shares none.
  std::optional<OptimizerView> Optimizer() const {
    if (shards_ != nullptr) return shards_->Optimizer();
    return optimizer_ ? optimizer_->Read() : std::nullopt;
  }
  /// Null if the model is not sharded.
  const std::shared_ptr<Shards>& shards() const { return shards_; }
  /// Makes the trainer, which is inside finish(), fill the slot, and waits for it, no longer than
  /// until `deadline`.
  FillOutcome TakeLast(std::chrono::steady_clock::time_point deadline, const CancelToken& cancel);
  /// Once, when the monitor has started: lets the trainer take snapshots.
  void Connect(Measurer measurer);

  enum class End {
    kStopped,
    kTrainerGone,
    /// The losses closure has given no sign of life for Manifest::longest_silence_ms: another
    /// process may take the place of this one.
    kSilent,
  };
  /// Passes the trainer's signals to the monitor, once there is one, until something ends that.
  End Run();
  /// Any thread: waits until the trainer has sent a signal since the last call, or for `longest`.
  /// For one caller.
  void WaitForSignal(std::chrono::milliseconds longest);
  /// Any thread: the monitor has finished, which other ranks may wait for (Shards::TellFinished).
  void TellFinished(int64_t last_step, const absl::Status& status, int64_t sequence) {
    if (shards_ != nullptr) shards_->TellFinished(last_step, status, sequence);
  }
  /// Any thread: the worker has sent an alarm to the trainer.
  void CountAlarm() { page_.alarms.fetch_add(1, std::memory_order_release); }
  /// Any thread: makes Run return, and removes what other hosts read.
  void Stop();

 private:
  WorkerLink(const Options& options, SharedMemory memory, Manifest manifest);
  // Follows the other ranks. Returns how long to wait for the next look.
  std::chrono::milliseconds WatchShards(const Measurer& measurer);
  void PassOnServer(const Measurer& measurer);
  bool TrainerEnded() const;
  // Whether the trainer has left something.
  bool Wait(std::chrono::milliseconds longest) const;

  const Options options_;
  const std::shared_ptr<const SharedMemory> memory_;
  Page& page_;
  const Manifest manifest_;
  const std::optional<SharedOptimizer> optimizer_;
  std::shared_ptr<Shards> shards_;
  std::atomic<bool> gathered_{false};  // after shards_
  int64_t incomplete_ = 0;             // snapshots; used by Run
  const int stop_;
  std::atomic<bool> stopped_{false};
  uint64_t server_seen_ = 0;  // used by Run
  mutable Mutex mutex_;
  std::shared_ptr<const Measurer> measurer_ ABSL_GUARDED_BY(mutex_);
  bool signalled_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar signal_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STAGING_WORKER_LINK_H_
