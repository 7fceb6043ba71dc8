#ifndef PTQWATCH_STAGING_SHARDS_H_
#define PTQWATCH_STAGING_SHARDS_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "handover/page.h"
#include "ptqwatch/subject.h"
#include "staging/far_ranks.h"
#include "staging/host_relay.h"
#include "staging/manifest.h"
#include "staging/shared_memory.h"
#include "staging/shared_optimizer.h"
#include "staging/whole_tensors.h"

namespace ptqwatch::internal {

/// The ranks of a host over which a model is sharded, as the process that measures sees them. Each
/// rank copies its parts to memory of its own, at steps that all choose alike, and never waits. A
/// snapshot is complete once all hold the same step; one that cannot become complete is dropped.
/// Thread-safe.
class Shards {
 public:
  /// Waits until the ranks of this host that `own` names have published their memory, and checks
  /// that their parts are a model. If a host has only a part of it, the first host waits for the
  /// ranks of all, and the others get a relay. `trainer` is the process of the rank that `own`
  /// belongs to. DeadlineExceeded if a rank has not, FailedPrecondition or NotFound for parts that
  /// are none, naming the rank or the tensor; Cancelled once `stopped`.
  static absl::StatusOr<std::unique_ptr<Shards>> Open(std::shared_ptr<const SharedMemory> own,
                                                      const Manifest& manifest, pid_t trainer,
                                                      std::chrono::steady_clock::time_point until,
                                                      const std::atomic<bool>& stopped);

  /// Not null if another host measures; then only this and End may be called.
  HostRelay* relay() const { return relay_.get(); }
  /// Whether there are ranks of other hosts among these.
  bool several_hosts() const { return far_ != nullptr; }
  /// Tells the other hosts, which would wait, that nothing is measured.
  void Fail(std::string_view why) noexcept;
  /// Removes what other hosts read. Any thread, at the end.
  void End() noexcept;

  /// The whole tensors: at first, those with which the ranks began.
  const std::vector<NamedTensor>& tensors() const { return weights_->tensors(); }
  /// The optimizer of the snapshot that was assembled last; nullopt if the ranks share none.
  std::optional<OptimizerView> Optimizer() const;
  /// A line for each rank.
  std::string Describe() const;

  /// Measuring thread: whether a snapshot is complete, which it then assembles. Until Release, no
  /// rank can copy.
  bool Begin() noexcept;
  void Release() noexcept;
  void Done() noexcept;

  /// Whether Begin would return true.
  bool complete() const;
  /// Passes the switches on to all ranks.
  void PassOn() noexcept;
  /// Drops what cannot become complete. Returns the reason if that was a snapshot.
  std::optional<std::string> Drop();
  /// Drops what any rank holds, but for snapshots of that step.
  void DropAllBut(int64_t step) noexcept;
  /// Makes all ranks, which are inside finish(), copy their parts.
  void AskForLast() noexcept;
  /// Nullopt until all ranks have answered that.
  std::optional<SnapshotResult> LastTaken() const noexcept;
  /// The ranks that have not, for a message.
  std::string WithoutAnswer() const;
  /// Ends the waiting inside finish() of the other ranks. `sequence`: of the newest report.
  void TellFinished(int64_t last_step, const absl::Status& status, int64_t sequence) noexcept;
  /// If the ranks have different last steps: which.
  std::optional<std::string> DifferentSteps() const;
  /// The whole weights and moments that this process holds.
  int64_t assembled_bytes() const;
  /// Before the other ranks take snapshots.
  void TakeOver() noexcept;
  /// The page of a rank that there is. For tests.
  Page& PageOf(int64_t rank) const;

 private:
  struct Rank {
    int64_t rank = 0;
    std::shared_ptr<const SharedMemory> memory;
    Manifest manifest;
    std::optional<SharedOptimizer> optimizer = {};

    Page& page() const { return memory->page(); }
    SlotPage& slot() const { return memory->page().slot; }
  };
  explicit Shards(std::vector<Rank> ranks) : ranks_(std::move(ranks)) {}
  // FindShards, until all ranks of this host are there.
  static absl::StatusOr<std::vector<Rank>> Gather(std::shared_ptr<const SharedMemory> own,
                                                  const Manifest& manifest, pid_t trainer,
                                                  std::chrono::steady_clock::time_point until,
                                                  const std::atomic<bool>& stopped);
  absl::Status Assemble();
  // The same if this host has only a part, with the ranks of all hosts, or the relay.
  absl::Status LookToOtherHosts(const ShardPlace& place,
                                std::chrono::steady_clock::time_point until,
                                const std::atomic<bool>& stopped);
  // Whether all slots hold the same step.
  bool AllHold() const;
  // Why the snapshot of a rank cannot become complete.
  std::optional<std::string> Lacking(const Rank& rank) const;

  mutable Mutex mutex_;
  std::vector<Rank> ranks_;  // the first is the one that started this process
  std::unique_ptr<FarRanks> far_;
  std::unique_ptr<HostRelay> relay_;
  std::optional<WholeTensors> weights_;
  std::optional<WholeTensors> moments_;
  std::chrono::steady_clock::time_point waiting_since_ ABSL_GUARDED_BY(mutex_);
  int64_t waiting_for_ ABSL_GUARDED_BY(mutex_) = SlotPage::kNoStep;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STAGING_SHARDS_H_
