#ifndef PTQWATCH_TRAJECTORY_CHECKPOINT_NAME_H_
#define PTQWATCH_TRAJECTORY_CHECKPOINT_NAME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ptqwatch::internal {

/// Facts that the name of a folder or of a revision holds.
struct CheckpointName {
  std::string branch;  ///< the part before the step, without the separator; often empty
  int64_t step = 0;
  std::optional<int64_t> tokens;
  friend bool operator==(const CheckpointName&, const CheckpointName&) = default;
};

/// Reads names of the form [BRANCH-]WORD[-]NUMBER[-tokensAMOUNT], where WORD is step, global_step,
/// checkpoint, ckpt or iter, "_" may replace "-", and AMOUNT may end in K, M, B or T: "step512",
/// "checkpoint-500", "ckpt_000", "stage2-ingredient1-step11931-tokens50B". nullopt for other names.
std::optional<CheckpointName> ParseCheckpointName(std::string_view name);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_CHECKPOINT_NAME_H_
