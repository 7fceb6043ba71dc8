// The training loop. It uses ptqwatch's StepInfo, but not LibTorch.

#include "train.h"

#include <algorithm>
#include <random>
#include <vector>

namespace ptqwatch::examples {

double LearningRate(const Recipe& recipe, int64_t step) {
  const auto ratio = [](int64_t a, int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  const int64_t left = recipe.steps - step;
  if (step < recipe.warmup_steps) {
    return recipe.peak_learning_rate * ratio(step + 1, recipe.warmup_steps);
  }
  if (left <= recipe.decay_steps) {
    return recipe.peak_learning_rate * ratio(left, recipe.decay_steps);
  }
  return recipe.peak_learning_rate;
}

void Train(Net& net, AdamW& optimizer, std::span<const uint8_t> text, const Recipe& recipe,
           const std::function<bool(const StepInfo&)>& on_step) {
  std::mt19937_64 generator(recipe.seed);
  const uint64_t choices = text.size() - static_cast<uint64_t>(net.shape().context);
  std::vector<Window> batch(static_cast<size_t>(recipe.batch));
  for (int64_t step = 0; step < recipe.steps; ++step) {
    const double learning_rate = LearningRate(recipe, step);
    for (Window& window : batch) window = text.data() + generator() % choices;
    const double loss = net.LossAndGradient(batch);
    optimizer.Step(learning_rate);
    if (!on_step({.step = step + 1,
                  .learning_rate = learning_rate,
                  .tokens = (step + 1) * recipe.batch,
                  .loss = loss})) {
      return;
    }
  }
}

}  // namespace ptqwatch::examples
