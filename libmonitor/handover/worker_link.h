#ifndef PTQWATCH_HANDOVER_WORKER_LINK_H_
#define PTQWATCH_HANDOVER_WORKER_LINK_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "handover/remote_trainer.h"
#include "handover/shared_memory.h"
#include "handover/shared_optimizer.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::internal {

/// The worker's part of a monitor that works in a process of its own (ProcessTrainer is the other
/// part). Thread-safe, apart from Run.
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
  /// Takes the descriptors.
  static absl::StatusOr<std::unique_ptr<WorkerLink>> Open(const Options& options);
  ~WorkerLink();

  /// A subject whose live tensors are the shared ones, and which is `model` otherwise. This object
  /// must outlive it and its monitor.
  std::unique_ptr<Subject> Subjected(std::unique_ptr<Subject> model);

  enum class End {
    kStopped,
    kTrainerGone,
    kSilent,  ///< the losses closure does not return
  };
  /// Passes the trainer's steps to the monitor, once there is one, until something ends that.
  End Run();
  /// Any thread: there will be no monitor, because it is inert. Steps are dropped.
  void Drop() { drop_ = true; }
  /// Any thread: the worker has sent an alarm to the trainer.
  void CountAlarm() { page_.alarms.fetch_add(1, std::memory_order_release); }
  /// Any thread: makes Run return.
  void Stop();

  /// Waits until all steps that the trainer has done before the call are passed on, for at most
  /// `timeout`.
  void WaitUntilRead(std::chrono::milliseconds timeout) const;

 private:
  WorkerLink(const Options& options, SharedMemory memory);
  void Connect(RemoteTrainer::Monitor monitor);
  // Measures the snapshots of an earlier worker. One that it had begun is measured once more,
  // unless the slot has another one by now.
  void TakeOver(const RemoteTrainer::Monitor& monitor);
  // Whether a step that is not passed on yet has filled the slot.
  bool TakenIsUnread() const;
  // Passes on one step. False if there is none.
  bool PassOn(const RemoteTrainer::Monitor* monitor);
  void PassOnServer(const RemoteTrainer::Monitor& monitor);
  FillOutcome TakeLast();
  bool TrainerEnded() const;
  void Wait(std::chrono::milliseconds longest) const;

  const Options options_;
  const SharedMemory memory_;
  SharedPage& page_;
  const std::optional<SharedOptimizer> optimizer_;
  RemoteTrainer remote_;
  const int stop_;
  std::atomic<bool> stopped_{false};
  std::atomic<bool> drop_{false};
  uint64_t server_seen_ = 0;  // used by Run
  mutable Mutex mutex_;
  std::shared_ptr<const RemoteTrainer::Monitor> monitor_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HANDOVER_WORKER_LINK_H_
