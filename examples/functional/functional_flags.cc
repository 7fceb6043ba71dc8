#include "functional_flags.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "program.h"

namespace ptqwatch::examples {
namespace {

constexpr int64_t kWarmupSteps = 300;

}  // namespace

FunctionalFlags ParseFunctionalFlags(int argc, char** argv) {
  CLI::App app(
      "Trains a small character-level MLP with its own arithmetic, on its own arrays, and "
      "watches how much quantization would cost it.");
  FunctionalFlags flags;
  Recipe& recipe = flags.recipe;
  double decay_fraction = 0.2;
  AddTrainerFlags(app, &flags.trainer);
  const auto positive = CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max(), "INT >= 1");
  app.add_option("--steps", recipe.steps, "Optimizer steps")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--batch", recipe.batch, "Predictions per step")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--lr", recipe.peak_learning_rate, "Peak learning rate")
      ->check(RealFrom(1e-12, 1e3))
      ->capture_default_str();
  app.add_option("--decay-fraction", decay_fraction,
                 "Share of the run over which the learning rate decays to zero")
      ->check(RealFrom(0, 1))
      ->capture_default_str();
  app.add_option("--weight-decay", recipe.weight_decay, "AdamW's weight decay")
      ->check(RealFrom(0, 10))
      ->capture_default_str();
  ParseFlags(app, argc, argv);
  if (flags.trainer.threads != 1) {
    throw UsageError("--threads: " + std::to_string(flags.trainer.threads) +
                     " is not 1; this trainer computes on one thread");
  }
  recipe.seed = flags.trainer.seed;
  recipe.decay_steps = std::llround(decay_fraction * static_cast<double>(recipe.steps));
  recipe.warmup_steps =
      std::min({kWarmupSteps, recipe.steps / 10, recipe.steps - recipe.decay_steps});
  return flags;
}

}  // namespace ptqwatch::examples
