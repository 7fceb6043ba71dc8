#ifndef PTQWATCH_TRAJECTORY_CHECKPOINT_MANIFEST_H_
#define PTQWATCH_TRAJECTORY_CHECKPOINT_MANIFEST_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "trajectory/checkpoint.h"

namespace ptqwatch::internal {

/// Reads a CSV file (RFC 4180) that lists checkpoints. Its first line names the columns, any of
/// path, step, tokens, learning_rate and branch; only path is required. An empty field, like a
/// missing column, leaves the value to DescribeCheckpoint; a field of an existing column `branch`
/// counts even if it is empty. Paths are relative to the manifest's folder.
///
/// `path` is the manifest's. Errors name path, line, column and value: InvalidArgument, and those
/// of DescribeCheckpoint.
absl::StatusOr<std::vector<Checkpoint>> ParseManifest(std::string_view csv,
                                                      const std::string& path);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_CHECKPOINT_MANIFEST_H_
