#ifndef PTQWATCH_LR_DECAY_STUDY_LEG_H_
#define PTQWATCH_LR_DECAY_STUDY_LEG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule.h"

namespace ptqwatch::examples {

/// Weights that a leg kept after a step.
struct KeptWeights {
  std::string leg = {};
  int64_t step = 0;
};

/// Weights whose mean is measured as if it were the model after `step`.
struct WeightsMean {
  int64_t step = 0;
  std::vector<KeptWeights> members = {};
};

/// A stretch of work that is done whole or not at all: training from one saved state to another, or
/// measuring means of kept weights. Its directory holds the journal of the run up to its end.
struct Leg {
  std::string id = {};   ///< a directory's name
  std::string run = {};  ///< the run that it is a part of
  std::vector<std::string> groups = {};
  int64_t seed = 0;
  std::vector<std::string> needs = {};  ///< legs that must be finished

  // Training.
  std::string parent =
      {};            ///< the leg whose state and journal it goes on from; empty: from scratch
  int64_t from = 0;  ///< steps done before it
  int64_t to = 0;    ///< steps done after it
  Schedule schedule = {};
  double weight_decay = 0;
  std::optional<uint64_t> batch_seed = {};  ///< another order of batches than the parent's
  bool keeps_weights = false;               ///< of every measured step, not of the last alone

  std::vector<WeightsMean> means = {};  ///< if there are any, nothing is trained
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_LR_DECAY_STUDY_LEG_H_
