#ifndef PTQWATCH_STAGING_FAR_RANKS_H_
#define PTQWATCH_STAGING_FAR_RANKS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "ptqwatch/execution_context.h"
#include "staging/host_state.h"
#include "staging/manifest.h"
#include "staging/shared_memory.h"

namespace ptqwatch::internal {

/// The ranks of the other hosts, as the process that measures on the first host sees them: memory
/// like that which the ranks of its own host share, kept up to date from files by a thread.
/// HostRelay is the other end. Thread-safe.
class FarRanks {
 public:
  struct Rank {
    int64_t rank = 0;
    int64_t host = 0;
    std::shared_ptr<const SharedMemory> memory;
    Manifest manifest;
  };

  /// Waits until all ranks of the other hosts have written their memory, at the start, and follows
  /// them. DeadlineExceeded, naming the host, if one gives no sign before `until`, or takes half an
  /// hour; FailedPrecondition if a rank refuses; Cancelled once `stopped`; errors of the files.
  static absl::StatusOr<std::unique_ptr<FarRanks>> Join(const ShardPlace& place,
                                                        std::chrono::steady_clock::time_point until,
                                                        const std::atomic<bool>& stopped);
  ~FarRanks() { End(); }

  /// In the order of their hosts.
  const std::vector<Rank>& ranks() const { return ranks_; }
  /// Tells the other hosts that nothing is measured.
  void Fail(std::string_view why);
  /// Writes what the pages hold a last time, and stops following. Idempotent.
  void End() noexcept;

 private:
  // The exchange about a rank so far.
  struct Progress {
    HostKey memory{};
    int64_t taken = 0;  // number of the newest image that was read
    int64_t freed = 0;
    int64_t dropped = 0;
  };

  FarRanks(ShardPlace place, HostKey session);
  std::string FolderOf(int64_t host) const { return HostFolder(place_, host, session_); }
  // Join.
  absl::Status MeetAll(std::chrono::steady_clock::time_point until,
                       const std::atomic<bool>& stopped);
  absl::Status Meet(int64_t host);
  void Follow();
  // Brings the memory up to date. Returns whether more than a step changed.
  bool Receive(int64_t host);
  bool Receive(const Rank& rank, const RankState& state, Progress& progress);
  FirstHost StateForOthers();
  // Returns whether there was anything to tell.
  bool Tell();
  // Whether the file of the first host is this one's.
  bool Holds() const;

  const ShardPlace place_;
  const HostKey session_;
  std::vector<Rank> ranks_;
  std::vector<Progress> progress_;   // of each; one thread at a time
  std::map<int64_t, size_t> index_;  // by number of the rank
  std::string told_;                 // one thread at a time
  RateLimitedLog failed_;
  CancelToken cancel_;  // of the image that is being read
  Mutex mutex_;
  CondVar ended_;
  bool end_ ABSL_GUARDED_BY(mutex_) = false;
  std::string failure_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STAGING_FAR_RANKS_H_
