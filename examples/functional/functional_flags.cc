#include "functional_flags.h"

#include <algorithm>
#include <cmath>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "flag_checks.h"

namespace ptqwatch::examples {
namespace {

constexpr int64_t kWarmupSteps = 300;

}  // namespace

std::optional<int> ParseFunctionalFlags(int argc, char** argv, FunctionalFlags* flags) {
  CLI::App app(
      "Trains a small character-level MLP with arithmetic of its own, on arrays of its own, and "
      "watches what quantization would cost it.");
  Recipe& recipe = flags->recipe;
  double decay_fraction = 0.2;
  AddTrainerFlags(app, &flags->trainer);
  app.add_option("--text", flags->text,
                 "Text to train on [the King James Bible, as `bible` prints it]");
  app.add_option("--steps", recipe.steps, "Optimizer steps")
      ->check(IntegerAtLeast(1))
      ->capture_default_str();
  app.add_option("--batch", recipe.batch, "Predictions a step")
      ->check(IntegerAtLeast(1))
      ->capture_default_str();
  app.add_option("--lr", recipe.peak_learning_rate, "Peak learning rate")
      ->check(PositiveReal())
      ->capture_default_str();
  app.add_option("--decay-fraction", decay_fraction,
                 "Last part of the run, in which the learning rate falls to zero")
      ->check(RealBetween(0, 1))
      ->capture_default_str();
  app.add_option("--weight-decay", recipe.weight_decay, "AdamW's")
      ->check(RealBetween(0, 10))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--wait", [flags](const std::string& value) { flags->wait = value == "on"; },
         "Wait for each snapshot to be measured (on), so that every run has the same ones")
      ->check(OneOf({"on", "off"}))
      ->default_str("off");
  if (const auto exit_code = ParseFlags(app, argc, argv)) return exit_code;
  if (flags->trainer.threads != 1) {
    return FailWithUsage(absl::StrCat("--threads: ", flags->trainer.threads,
                                      " is not 1; this trainer computes on one thread"));
  }
  recipe.seed = flags->trainer.seed;
  recipe.decay_steps = std::llround(decay_fraction * static_cast<double>(recipe.steps));
  recipe.warmup_steps =
      std::min({kWarmupSteps, recipe.steps / 10, recipe.steps - recipe.decay_steps});
  return std::nullopt;
}

}  // namespace ptqwatch::examples
