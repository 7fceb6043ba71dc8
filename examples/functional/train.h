#ifndef PTQWATCH_FUNCTIONAL_TRAIN_H_
#define PTQWATCH_FUNCTIONAL_TRAIN_H_

#include <cstdint>
#include <functional>
#include <span>

#include "adamw.h"
#include "net.h"
#include "ptqwatch/step_info.h"

namespace ptqwatch::examples {

struct Recipe {
  int64_t steps = 0;
  int64_t warmup_steps = 0;  ///< linear from zero to the peak
  int64_t decay_steps = 0;   ///< linear from the peak to zero, at the end
  double peak_learning_rate = 0;
  double weight_decay = 0;  ///< passed to the optimizer by its creator
  int64_t batch = 0;        ///< predictions per step
  uint64_t seed = 0;
};

/// The rate at a step. The first step is step 0.
double LearningRate(const Recipe& recipe, int64_t step);

/// The training loop. Calls `on_step` after each update; the weights do not change until it
/// returns. A result of false ends the run. REQUIRES: the text is at least one window long.
void Train(Net& net, AdamW& optimizer, std::span<const uint8_t> text, const Recipe& recipe,
           const std::function<bool(const StepInfo&)>& on_step);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_FUNCTIONAL_TRAIN_H_
