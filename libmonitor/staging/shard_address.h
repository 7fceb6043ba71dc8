#ifndef PTQWATCH_STAGING_SHARD_ADDRESS_H_
#define PTQWATCH_STAGING_SHARD_ADDRESS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

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

  /// Once. `file` is the descriptor of the memory. Errors are the file system's and name the path.
  absl::Status Publish(const ShardPlace& place, int file);
  /// Removes the file. Idempotent; any thread.
  void Withdraw() noexcept;
  /// Tells why this rank shares no memory. Errors are ignored: the process that measures then waits
  /// for this rank in vain, and says so.
  static void Refuse(const ShardPlace& place, std::string_view why);

 private:
  const ProcessMark process_;
  std::string path_;
};

/// The ranks of a launch that have published an address.
struct ShardsFound {
  std::map<int64_t, std::string> memory;  ///< path by which the memory of a rank can be opened
  /// Why a rank's memory cannot be used: it is refused, or in another PID namespace of this host.
  std::map<int64_t, std::string> problems;
};

/// Looks for the ranks of `place.job` in its directory. Those of other hosts are left out.
ShardsFound FindShards(const ShardPlace& place);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STAGING_SHARD_ADDRESS_H_
