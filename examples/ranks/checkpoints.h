#ifndef PTQWATCH_RANKS_CHECKPOINTS_H_
#define PTQWATCH_RANKS_CHECKPOINTS_H_

#include <cstdint>
#include <string>

namespace ptqwatch::examples {

/// The file of a step: FOLDER/step-STEP.safetensors.
std::string CheckpointPath(const std::string& folder, int64_t step);

/// The step of the newest checkpoint in the folder; 0 if there is none, or no such folder.
int64_t NewestCheckpoint(const std::string& folder);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_RANKS_CHECKPOINTS_H_
