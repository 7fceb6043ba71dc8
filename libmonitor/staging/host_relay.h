#ifndef PTQWATCH_STAGING_HOST_RELAY_H_
#define PTQWATCH_STAGING_HOST_RELAY_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "ptqwatch/execution_context.h"
#include "staging/host_state.h"
#include "staging/manifest.h"
#include "staging/shared_memory.h"

namespace ptqwatch::internal {

/// The ranks of a host that has only a part of a model, on their way to the first host, which
/// measures: a thread of the process that would otherwise measure writes their snapshots to files
/// and obeys the first host's (FarRanks). A rank has one snapshot at a time there, and takes no
/// other one until the first host has read it. Thread-safe.
class HostRelay {
 public:
  struct Rank {
    int64_t rank = 0;
    std::shared_ptr<const SharedMemory> memory;
  };
  /// `ranks` are all of the host's, with the first in front.
  HostRelay(ShardPlace place, std::vector<Rank> ranks);
  ~HostRelay() { End(); }

  /// Once: follows the first host, and waits until it measures. FailedPrecondition, with its
  /// reason, if it does not; DeadlineExceeded if it gives no sign before `until`, or does not
  /// measure within half an hour; Cancelled once `stopped`.
  absl::Status Start(std::chrono::steady_clock::time_point until, const std::atomic<bool>& stopped);
  /// How the first host has finished that step, once for each of its finishes; Unavailable if it
  /// has ended without.
  std::optional<absl::Status> Finished(int64_t step);
  /// Removes the files of this host, and if it is the last, the first host's. Idempotent.
  void End() noexcept;

 private:
  // A rank, and the exchange about it so far.
  struct Followed : Rank {
    HostKey key{};
    int64_t asked = 0;    // RankOrder::asked
    int64_t freed = 0;    // number of the newest image that was removed
    int64_t failed = -1;  // number of the newest snapshot of which no image could be written
    RankState told{};
  };
  // The first host, with its finishes counted over its processes.
  struct First {
    FirstHost state{};
    bool known = false;  // to know this host's ranks
    int64_t before = 0;  // finishes of earlier processes
    int64_t newest() const { return before + state.finished; }
    int64_t first() const { return before + state.finished_first; }
  };

  void Follow();
  // Returns whether more than a step changed.
  bool Look();
  absl::Status Greet(const FirstHost& first, const std::vector<RankOrder>& orders);
  // First::before, as the pages say, for the first look of a process.
  int64_t FinishesBefore(const FirstHost& first, bool known) const;
  // Whether the first host knows all ranks.
  bool Obey(const std::vector<RankOrder>& orders);
  void Obey(const RankOrder& order, Followed& rank);
  void PassOn(const First& first);
  // The state of a rank, whose snapshot is written first.
  RankState StateOf(Followed& rank);
  std::string PathOf(const Followed& rank, int64_t image) const {
    return ImagePath(folder_, rank.rank, image);
  }

  const ShardPlace place_;
  const HostKey job_;
  // The thread's, until it has ended.
  std::vector<Followed> ranks_;
  HostKey session_{};
  std::string folder_;
  std::string read_;  // what the first host said last
  std::string told_;
  RateLimitedLog failed_;
  CancelToken cancel_;  // of the image that is being written

  Mutex mutex_;
  CondVar changed_;
  bool end_ ABSL_GUARDED_BY(mutex_) = false;
  First first_ ABSL_GUARDED_BY(mutex_);
  bool seen_ ABSL_GUARDED_BY(mutex_) = false;  // a sign of the first host
  std::string problem_ ABSL_GUARDED_BY(mutex_);
  int64_t returned_ ABSL_GUARDED_BY(mutex_) = 0;  // by Finished
  Thread thread_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STAGING_HOST_RELAY_H_
