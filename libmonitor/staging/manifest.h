#ifndef PTQWATCH_STAGING_MANIFEST_H_
#define PTQWATCH_STAGING_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "staging/shared_memory.h"
#include "staging/shared_optimizer.h"

namespace ptqwatch::internal {

/// The place of a process among those over which a model is sharded.
struct ShardPlace {
  std::string job = {};        ///< equal for the ranks of a launch, and for no others
  std::string directory = {};  ///< where the ranks find each other
  int64_t rank = 0;            ///< in the whole job
  int64_t local_ranks = 1;     ///< processes of the job on this host
  int64_t host = 0;
  int64_t hosts = 1;
};

/// The contents of the memory that a trainer shares with the process that measures.
struct Manifest {
  std::vector<SharedTensor> layout = {};
  OptimizerLayout optimizer = {};
  std::string device = "cpu";  ///< of the live model
  /// As MonitorOptions of the trainer has them.
  std::string run_dir = {};
  std::optional<ShardPlace> shard = {};  ///< set if the model is sharded
  std::optional<int64_t> rank = {};
  std::optional<int64_t> ranks = {};
  int64_t training_threads = 0;
  std::string schedule = {};  ///< as TextOf gives it; both halves must have the same
  /// A process whose losses closure gives no sign of life for this long ends; 0: no limit.
  int64_t longest_silence_ms = 0;
};

std::string ToJson(const Manifest& manifest);
/// DataLoss if `json` is none.
absl::StatusOr<Manifest> ManifestFromJson(std::string_view json);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STAGING_MANIFEST_H_
