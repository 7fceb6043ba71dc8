#include "char_gpt_flags.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "mixture.h"
#include "program.h"

namespace ptqwatch::examples {
namespace {

constexpr int64_t kWarmupSteps = 300;
// The monitor takes a matrix for a router if at most half of its outputs are chosen.
constexpr int64_t kFewestExperts = 2 * kExpertsPerToken;

/// Flags as given. Their defaults depend on other flags.
struct Given {
  std::string model = "gpt";
  std::string schedule = "wsd";
  std::string optimizer = "adamw";
  std::optional<int64_t> sam_from;
  std::optional<int64_t> steps;
  std::optional<int64_t> warmup;
  std::optional<int64_t> width;
  std::optional<int64_t> layers;
  std::optional<int64_t> experts;
  double decay_fraction = 0.2;
};

void AddFlags(CLI::App& app, CharGptFlags* flags, Given* given) {
  AddTrainerFlags(app, &flags->trainer);
  const auto integer = [&app](const char* name, auto* value, int64_t min, const char* help) {
    return app.add_option(name, *value, help)
        ->check(
            CLI::Range(min, std::numeric_limits<int64_t>::max(), "INT >= " + std::to_string(min)));
  };
  app.add_option("--model", given->model, "Model to train")
      ->check(CLI::IsMember({"gpt", "mlp"}))
      ->capture_default_str();
  integer("--steps", &given->steps, 1, "Optimizer steps [gpt 16000, mlp 20000]");
  app.add_option("--lr", flags->schedule.peak, "Peak learning rate")
      ->check(RealFrom(1e-12, 1e3))
      ->capture_default_str();
  app.add_option("--schedule", given->schedule, "Schedule of the learning rate")
      ->check(CLI::IsMember({"wsd", "cosine", "constant"}))
      ->capture_default_str();
  integer("--warmup", &given->warmup, 0,
          "Steps of linear warm-up [300, at most a tenth of the run]");
  app.add_option("--decay-fraction", given->decay_fraction,
                 "Share of the run over which wsd decays to zero")
      ->check(RealFrom(0, 1))
      ->capture_default_str();
  app.add_option("--optimizer", given->optimizer,
                 "adamw, or muon for the matrices between embeddings and head")
      ->check(CLI::IsMember({"adamw", "muon"}))
      ->capture_default_str();
  app.add_option("--weight-decay", flags->weight_decay,
                 "Weight decay of the optimizer, on matrices only")
      ->check(RealFrom(0, 10))
      ->capture_default_str();
  app.add_option("--sam-rho", flags->sam_rho,
                 "Radius of sharpness-aware minimisation, which doubles the cost of a step [off]")
      ->check(RealFrom(0, 1e3));
  integer("--sam-from", &given->sam_from, 0,
          "With --sam-rho: its first step [the decay's, or 0 without a decay]");
  integer("--width", &given->width, 1, "Width of the hidden state [gpt 32, mlp 64]");
  integer("--layers", &given->layers, 1, "Blocks [gpt 2, mlp 3]");
  integer("--heads", &flags->heads, 1, "Attention heads")->capture_default_str();
  integer("--experts", &given->experts, kFewestExperts,
          "With gpt: mixtures of as many experts in place of the MLPs; each token takes 2 [none]");
  integer("--length", &flags->length, 1, "Predictions per sequence")->capture_default_str();
  integer("--batch", &flags->batch, 1, "Sequences per step")->capture_default_str();
  integer("--probe-sequences", &flags->probe_sequences, 1,
          "Held-out sequences for comparing losses")
      ->capture_default_str();
  integer("--calibration-sequences", &flags->calibration_sequences, 1,
          "Training sequences for calibrating GPTQ")
      ->capture_default_str();
  integer("--cooldown-every", &flags->cooldown_every, 0,
          "With wsd: plateau snapshots from one shadow cooldown to the next [on request]");
}

/// Resolves defaults that depend on several flags. Throws UsageError for contradictions.
void Resolve(const Given& given, CharGptFlags* flags) {
  flags->mlp = given.model == "mlp";
  flags->muon = given.optimizer == "muon";
  flags->width = given.width.value_or(flags->mlp ? 64 : 32);
  flags->layers = given.layers.value_or(flags->mlp ? 3 : 2);
  if (!flags->mlp && flags->width % flags->heads != 0) {
    throw UsageError("--heads: " + std::to_string(flags->heads) + " does not divide --width " +
                     std::to_string(flags->width));
  }
  flags->experts = given.experts.value_or(0);
  if (flags->experts > 0 && flags->mlp) {
    throw UsageError("--experts: " + std::to_string(flags->experts) + " needs --model gpt");
  }
  // Nor does it take one with as many outputs as inputs.
  if (flags->experts >= flags->width) {
    throw UsageError("--experts: " + std::to_string(flags->experts) +
                     " must be fewer than --width " + std::to_string(flags->width));
  }
  Schedule& schedule = flags->schedule;
  schedule.kind = given.schedule == "wsd"      ? ScheduleKind::kWsd
                  : given.schedule == "cosine" ? ScheduleKind::kCosine
                                               : ScheduleKind::kConstant;
  schedule.steps = given.steps.value_or(flags->mlp ? 20000 : 16000);
  schedule.decay_steps =
      schedule.kind != ScheduleKind::kWsd
          ? 0
          : std::llround(given.decay_fraction * static_cast<double>(schedule.steps));
  if (flags->cooldown_every > 0 && schedule.decay_steps == 0) {
    throw UsageError("--cooldown-every: " + std::to_string(flags->cooldown_every) +
                     " needs --schedule wsd with a decay");
  }
  const int64_t before_decay = schedule.steps - schedule.decay_steps;
  if (given.sam_from && flags->sam_rho == 0) {
    throw UsageError("--sam-from: " + std::to_string(*given.sam_from) + " needs --sam-rho");
  }
  flags->sam_from = given.sam_from.value_or(schedule.decay_steps > 0 ? before_decay : 0);
  schedule.warmup_steps =
      given.warmup.value_or(std::min({kWarmupSteps, schedule.steps / 10, before_decay}));
  if (schedule.warmup_steps > before_decay) {
    throw UsageError("--warmup: " + std::to_string(schedule.warmup_steps) +
                     " steps are more than the " + std::to_string(before_decay) +
                     " before the decay");
  }
}

}  // namespace

CharGptFlags ParseCharGptFlags(int argc, char** argv, const std::string& description,
                               absl::FunctionRef<void(CLI::App&)> add_more) {
  CLI::App app(description);
  CharGptFlags flags;
  Given given;
  AddFlags(app, &flags, &given);
  add_more(app);
  ParseFlags(app, argc, argv);
  Resolve(given, &flags);
  return flags;
}

}  // namespace ptqwatch::examples
