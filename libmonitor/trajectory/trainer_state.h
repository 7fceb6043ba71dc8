#ifndef PTQWATCH_TRAJECTORY_TRAINER_STATE_H_
#define PTQWATCH_TRAJECTORY_TRAINER_STATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/step_info.h"

namespace ptqwatch::internal {

inline constexpr char kTrainerStateName[] = "trainer_state.json";

/// The trainer_state.json of a checkpoint of Hugging Face's Trainer.
struct TrainerState {
  int64_t step = 0;               ///< global_step
  std::optional<int64_t> tokens;  ///< num_input_tokens_seen; absent if it was not counted
  /// log_history[].learning_rate up to `step`, by ascending step.
  std::vector<LrChangePoint> rates;
};

/// Reads the text of a trainer_state.json, in which Python may have written NaN. `path` is for
/// messages. InvalidArgument names path and key.
absl::StatusOr<TrainerState> ParseTrainerState(std::string_view json, const std::string& path);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_TRAINER_STATE_H_
