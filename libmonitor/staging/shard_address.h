#ifndef PTQWATCH_STAGING_SHARD_ADDRESS_H_
#define PTQWATCH_STAGING_SHARD_ADDRESS_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/process_end.h"
#include "staging/manifest.h"

namespace ptqwatch::internal {

/// Tells the process that measures on this host where the memory of a rank is, by a file in the
/// directory that the ranks share. The destructor removes it.
class ShardAddress {
 public:
  ShardAddress() = default;
  ShardAddress(const ShardAddress&) = delete;
  ShardAddress& operator=(const ShardAddress&) = delete;
  ~ShardAddress() { Withdraw(); }

  /// Once. `file` is the descriptor of the memory. Withdraws a refusal that an earlier launch left.
  /// Errors are the file system's and name the path.
  absl::Status Publish(const ShardPlace& place, int file);
  /// Removes the file, unless another address has taken its place. Idempotent; any thread.
  void Withdraw() noexcept;
  /// Tells why this rank shares no memory. Errors are ignored: the process that measures then waits
  /// for this rank in vain, and says so.
  static void Refuse(const ShardPlace& place, std::string_view why);
  /// Removes a refusal of this process.
  static void WithdrawRefusal(const ShardPlace& place) noexcept;

 private:
  const ProcessMark process_;
  std::string path_;
  int file_ = -1;
};

/// The ranks of a launch that have published an address.
struct ShardsFound {
  std::map<int64_t, std::string> memory;  ///< path by which the memory of a rank can be opened
  std::map<int64_t, std::string> refusals;
  /// Ranks in another PID namespace of this host, unless they are left of an earlier launch.
  std::vector<int64_t> unreachable;
};

/// Looks for the ranks of `place.job` on `place.host` in its directory. Those that run on another
/// machine than this process are left out.
ShardsFound FindShards(const ShardPlace& place);
/// Looks for refusals of the ranks of all hosts. A process on another machine may have left one
/// that no longer lives, and its launch may look like this one, so such a refusal counts once it
/// has been there for ten seconds: its rank would have withdrawn it.
class RefusalWatch {
 public:
  explicit RefusalWatch(ShardPlace place) : place_(std::move(place)) {}
  /// Call it repeatedly. A message, or empty if there is none.
  std::string Look(std::chrono::steady_clock::time_point now);

 private:
  const ShardPlace place_;
  std::map<std::string, std::chrono::steady_clock::time_point> seen_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STAGING_SHARD_ADDRESS_H_
