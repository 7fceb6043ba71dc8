#ifndef PTQWATCH_TRAJECTORY_CHECKPOINT_H_
#define PTQWATCH_TRAJECTORY_CHECKPOINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ptqwatch/step_info.h"

namespace ptqwatch::internal {

/// The step of a checkpoint whose step is not known, which can be measured alone.
inline constexpr int64_t kUnknownStep = -1;

/// A checkpoint of a training run: its metadata.
struct Checkpoint {
  std::string name = {};    ///< of the folder or revision, for people
  std::string path = {};    ///< the folder with config.json; of a soup: empty
  std::string branch = {};  ///< empty: the run has one branch
  int64_t step = 0;
  std::optional<int64_t> tokens = {};        ///< seen so far
  std::optional<double> learning_rate = {};  ///< as the manifest gives it
  std::vector<LrChangePoint> rates = {};     ///< as the trainer logged them, by ascending step
  std::vector<std::string> soup = {};        ///< folders whose mean is measured; else empty

  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_CHECKPOINT_H_
