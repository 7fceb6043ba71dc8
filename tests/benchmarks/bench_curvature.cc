// The curvature engine on the character GPT of examples/char_gpt: what products with the Hessian
// cost, and how many of them the top eigenvalue takes during training.

#include "bench_curvature.h"

#include <cstdio>
#include <exception>
#include <optional>

#include "ATen/Parallel.h"
#include "CLI/CLI.hpp"

namespace {

using namespace ptqwatch::benchmarks;  // NOLINT

struct Flags {
  std::string text;
  std::optional<int64_t> width, layers, heads, length, sequences, batches;
  bool all_parameters = false;
  uint64_t seed = 0;
  int repeats = 15;
  std::string export_to;
  std::optional<int64_t> train_steps;
  std::string measure;
  int trace_probes = 32;
  bool track = false;
  TrackOptions tracking;
};

GptConfig Config(const Flags& flags) {
  // Tracking: the model and the curvature batch of examples/demo.
  GptConfig config;
  if (flags.track) {
    config = {.text = {},
              .width = 32,
              .layers = 2,
              .heads = 2,
              .length = 64,
              .sequences = 32,
              .batches = 2};
  }
  config.text = flags.text;
  config.width = flags.width.value_or(config.width);
  config.layers = flags.layers.value_or(config.layers);
  config.heads = flags.heads.value_or(config.heads);
  config.length = flags.length.value_or(config.length);
  config.sequences = flags.sequences.value_or(config.sequences);
  config.batches = flags.batches.value_or(config.batches);
  config.all_parameters = flags.all_parameters;
  config.seed = flags.seed;
  return config;
}

absl::Status Run(const Flags& flags) {
  try {
    const GptConfig config = Config(flags);
    if (flags.track) return TrackEigenvalue(config, flags.tracking);
    if (!flags.export_to.empty())
      return ExportModel(config, flags.export_to, flags.train_steps.value_or(300));
    if (!flags.measure.empty()) return MeasureModel(config, flags.measure, flags.trace_probes);
    return MeasureCosts(config, flags.train_steps.value_or(30), flags.repeats);
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Measures the curvature engine on a character GPT, on one thread.");
  const auto count = [&app](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->check(CLI::PositiveNumber);
  };
  app.add_option("--text", flags.text, "Text to train on [the King James Bible]");
  count("--width", flags.width, "Width of the hidden state [128; with --track 32]");
  count("--layers", flags.layers, "Blocks [4; with --track 2]");
  count("--heads", flags.heads, "Attention heads [4; with --track 2]");
  count("--length", flags.length, "Predictions per sequence [128; with --track 64]");
  count("--sequences", flags.sequences, "Sequences per batch [8; with --track 32]");
  count("--batches", flags.batches, "Curvature batches [1; with --track 2]");
  app.add_flag("--all-parameters", flags.all_parameters,
               "The Hessian of all parameters, not of the blocks' matrices alone");
  app.add_option("--seed", flags.seed)->capture_default_str();
  count("--repeats", flags.repeats, "Rounds of timing")->capture_default_str();
  auto* write = app.add_option("--export", flags.export_to,
                               "Write a trained model and its batch here, for compare_curvature");
  auto* train = count("--train", flags.train_steps,
                      "Steps before the costs are measured [30] or the model is exported [300]");
  auto* measure = app.add_option("--measure", flags.measure, "Measure such a model; prints JSON");
  count("--trace-probes", flags.trace_probes, "Probe vectors of its trace")
      ->needs(measure)
      ->capture_default_str();
  auto* track = app.add_flag("--track", flags.track,
                             "Follow the top eigenvalue through a training run: products, value, "
                             "residual, distance from an eigenvalue found to 0.1 %");
  train->excludes(track)->excludes(measure);
  for (auto* first : {track, write, measure}) {
    for (auto* second : {track, write, measure}) {
      if (first != second) first->excludes(second);
    }
  }
  const auto tracking = [&](CLI::Option* option) {
    return option->needs(track)->capture_default_str();
  };
  tracking(count("--snapshots", flags.tracking.snapshots, "Snapshots of the run"));
  tracking(count("--spacing", flags.tracking.spacing, "Steps between snapshots"));
  tracking(count("--lr", flags.tracking.peak, "Peak learning rate"));
  tracking(app.add_option("--save", flags.tracking.save, "Keep the snapshots' weights here"));
  tracking(app.add_option("--residuals", flags.tracking.residuals, "Residuals to stop at"))
      ->check(CLI::Range(1e-6, 1.0));
  tracking(app.add_flag("--warm-only", flags.tracking.warm_only, "Leave out cold starts"));
  tracking(app.add_option("--load", flags.tracking.load, "Take the snapshots from here"));
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  at::set_num_interop_threads(1);
  const absl::Status status = Run(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_curvature: %s\n", std::string(status.message()).c_str());
  return 1;
}
