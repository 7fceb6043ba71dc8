#ifndef PTQWATCH_TRAJECTORY_CHECKPOINT_LIST_H_
#define PTQWATCH_TRAJECTORY_CHECKPOINT_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trajectory/checkpoint.h"

namespace ptqwatch::internal {

struct CheckpointList {
  std::vector<Checkpoint> checkpoints;  ///< by branch and step
  std::vector<std::string> left_out;    ///< a line for each folder or revision, with the reason
};

/// Finds checkpoints. Each argument is
///   the folder of a checkpoint, or a file below `refs` of a hub cache,
///   a folder of checkpoints, such as the output of Hugging Face's Trainer with its checkpoint-*,
///   the folder of a model in a hub cache, whose downloaded revisions are taken,
///   a manifest (checkpoint_manifest.h), if it is another file.
/// In folders of checkpoints and hub caches, entries that are incomplete or have no step are left
/// out.
///
/// `growing`: the arguments are folders of checkpoints, or hub caches, that are still being filled.
/// They may be empty or missing.
///
/// Errors: NotFound, InvalidArgument (no checkpoint in an argument, weights in another format, one
/// of several checkpoints whose step is unknown, two with the same branch and step), and those of
/// manifests. All name the path.
absl::StatusOr<CheckpointList> ListCheckpoints(absl::Span<const std::string> arguments,
                                               bool growing = false);

/// "branch stage2, step 1000", "step 512".
std::string PlaceOf(const Checkpoint& checkpoint);

/// The mean of several checkpoints as one of its own, of branch "soup". `members` are names of
/// checkpoints of `list`, or paths as ListCheckpoints takes. Its step is the largest of theirs.
/// InvalidArgument names a member that is unknown or ambiguous, or says that there are too few.
absl::StatusOr<Checkpoint> MakeSoup(absl::Span<const std::string> members,
                                    absl::Span<const Checkpoint> list);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_CHECKPOINT_LIST_H_
