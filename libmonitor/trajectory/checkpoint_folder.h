#ifndef PTQWATCH_TRAJECTORY_CHECKPOINT_FOLDER_H_
#define PTQWATCH_TRAJECTORY_CHECKPOINT_FOLDER_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trajectory/checkpoint.h"

namespace ptqwatch::internal {

/// Describes the checkpoint in a folder: step, tokens and rates from its trainer_state.json, if it
/// has one, else step and tokens from `name`; the branch from `name`. Without any, the step is
/// kUnknownStep. An empty `name` stands for the last part of the path or, in a hub cache, for a
/// revision that refers to the folder. `path` may also be a file below `refs` of a hub cache, which
/// stands for its snapshot.
///
/// Errors: the status of errno if there is no such folder; those of ParseTrainerState. All name the
/// path.
absl::StatusOr<Checkpoint> DescribeCheckpoint(const std::string& path, std::string name = "");

/// The same for a folder whose step is given: only the trainer's rates are read. `path` as above.
absl::StatusOr<Checkpoint> DescribeCheckpointAt(const std::string& path, int64_t step);

/// OK if config.json and all files of weights are there, or shards of a trainer's ranks, whose
/// number is unknown. NotFound names the folder and the file
/// that it lacks; CheckFormat's error what is there instead. `trained`: trainer_state.json must be
/// there too, which Hugging Face's Trainer writes after the weights.
absl::Status CheckComplete(const std::string& folder, bool trained);

/// Names, sizes and times of the files in a folder: the same text as long as nothing is written.
/// The status of errno if the folder cannot be read.
absl::StatusOr<std::string> StateOfFolder(const std::string& folder);

/// When the weights of a checkpoint were last written, in Unix seconds; nullopt if that cannot be
/// read.
std::optional<double> TimeOfWeights(const std::string& folder);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_CHECKPOINT_FOLDER_H_
