#ifndef PTQWATCH_MONITOR_SHARD_MONITOR_H_
#define PTQWATCH_MONITOR_SHARD_MONITOR_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/process_end.h"
#include "monitor/followed_run.h"
#include "staging/manifest.h"

namespace ptqwatch::internal {

/// The monitor of a rank that only copies its part of a sharded model. The process that measures is
/// started by the first rank of the host.
class ShardMonitor final : public FollowedRun {
 public:
  /// Waits until that process measures, for at most `start_timeout`. FailedPrecondition if another
  /// rank has no monitor, with its reason.
  static absl::StatusOr<std::unique_ptr<ShardMonitor>> Start(
      std::unique_ptr<ProcessTrainer> trainer, std::string run_dir, const ShardPlace& place,
      std::chrono::milliseconds start_timeout);

  /// Copies the part of this rank when the process asks for it, until that has finished the last
  /// step, and returns its result.
  absl::Status Finish(std::chrono::milliseconds timeout, const CancelToken& cancel) override;
  absl::Status Stop(std::chrono::milliseconds deadline) override;
  /// Not OK, too, if no process has measured by the end of `start_timeout`, until one does.
  absl::Status creation_status() const override;
  std::string Describe() const override;

 private:
  ShardMonitor(std::unique_ptr<ProcessTrainer> trainer, std::string run_dir,
               const ShardPlace& place, std::chrono::steady_clock::time_point expected);

  const ShardPlace place_;
  const std::chrono::steady_clock::time_point expected_;  // when the process should measure
  const AtProcessEnd at_end_;                             // last: may be withdrawing the address
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_SHARD_MONITOR_H_
