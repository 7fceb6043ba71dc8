#ifndef PTQWATCH_MONITOR_REMOTE_MONITOR_H_
#define PTQWATCH_MONITOR_REMOTE_MONITOR_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/process_end.h"
#include "children/worker_keeper.h"
#include "monitor/followed_run.h"
#include "monitor/shard_rank.h"
#include "ptqwatch/options.h"
#include "ptqwatch/subject.h"
#include "staging/worker_link.h"

namespace ptqwatch::internal {

/// The environment variable with the pid of the trainer that a process measures for.
inline constexpr char kTrainerVariable[] = "PTQWATCH_TRAINER";
/// The one with the reason why an earlier process ended (WorkerKeeper).
inline constexpr char kReplacesVariable[] = "PTQWATCH_REPLACES";
/// Descriptors of that process.
inline constexpr int kMemoryDescriptor = 3;
inline constexpr int kWakeDescriptor = 4;
inline constexpr int kTrainerPidDescriptor = 5;  ///< a pidfd; closed if the kernel has none
/// Exit statuses of a process that only fails again, and of one whose losses do not return.
inline constexpr int kFailedStatus = 78;
inline constexpr int kSilentStatus = 75;

/// Ends this process, which was started to measure, and tells its trainer why.
[[noreturn]] void EndMeasuringProcess(std::string_view why);

/// Passes on the trainer's signals (WorkerLink::Run) until WorkerLink::Stop. Ends this process if
/// the trainer ends, or if the losses do not return.
void FollowTrainer(WorkerLink& link);

/// A monitor whose measuring half is a process of its own: MeasureForTrainer.
class RemoteMonitor final : public FollowedRun {
 public:
  /// `placed` are the options after EnterRank, `given` those before; `shard` is set if the model is
  /// sharded. Waits until the process measures, for at most ProcessOptions::start_timeout. A rank
  /// that does not measure gets a ShardMonitor. InvalidArgument for options that a process cannot
  /// follow; errors of ProcessTrainer::Create; FailedPrecondition, with its reason, if the process
  /// cannot measure.
  static absl::StatusOr<std::unique_ptr<MonitorPart>> Start(std::unique_ptr<Subject> subject,
                                                            const MonitorOptions& placed,
                                                            const MonitorOptions& given,
                                                            const std::optional<ShardRank>& shard);
  ~RemoteMonitor() override;

  void BeginIdle() noexcept override { AddIdle(1); }
  void EndIdle() noexcept override { AddIdle(-1); }
  absl::Status Finish(std::chrono::milliseconds timeout, const CancelToken& cancel) override;
  absl::Status Stop(std::chrono::milliseconds deadline) override;
  /// Not OK, too, if the process has turned out later to be unable to measure.
  absl::Status creation_status() const override;
  std::string Describe() const override;
  MonitorStatus status() const override;
  void SetServer(const ServerStatus& server, pid_t process) override;
  void AnnounceServer(bool failed, const std::string& message) override;

 private:
  using FollowedRun::FollowedRun;
  absl::Status StartProcess(const ProcessOptions& options, int threads);
  // Not OK if the process cannot measure, so that no other one follows.
  absl::Status Failure() const;
  // Waits until the running process measures.
  absl::Status AwaitReady(std::chrono::steady_clock::time_point until, const CancelToken& cancel);
  bool ready() const;
  // The answer of the process that measures now; nullopt if it ends first.
  std::optional<absl::Status> FinishOnce(std::chrono::steady_clock::time_point deadline,
                                         const CancelToken& cancel);
  void AddIdle(int64_t change) noexcept;

  int pidfd_ = -1;  // of this process
  std::unique_ptr<WorkerKeeper> worker_;
  Mutex stop_mutex_;  // held by Stop
  mutable Mutex mutex_;
  SharedServer::News server_ ABSL_GUARDED_BY(mutex_);
  std::optional<AtProcessEnd> at_end_;  // last: may be calling Stop
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_REMOTE_MONITOR_H_
