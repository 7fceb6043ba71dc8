// Trains one leg of the learning-rate decay study, from one saved state to the next, and regularly
// waits for a complete report; or measures means of weights saved by other legs. Adds the critical
// sharpness of each measured step to sharpness.jsonl. The script `study` plans the legs, runs this
// program for each, and judges their journals.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/TensorOperators.h"
#include "absl/strings/str_split.h"
#include "char_training.h"
#include "program.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/offline/average_weights.h"
#include "ptqwatch/offline/loss_curvature.h"

namespace ptqwatch::examples {
namespace {

namespace fs = std::filesystem;

// A machine may sleep or be busy.
constexpr std::chrono::hours kPatience(24);
constexpr std::chrono::seconds kStopTime(30);
// More than any report needs, and the same on every machine.
constexpr int64_t kMonitorBytes = int64_t{1} << 30;
// The step along the gradient from which the search for the critical rate starts. These models have
// critical rates of about 0.04 to 2.
constexpr double kGradientStep = 0.1;

const std::map<std::string, DecayShape> kShapes = {{"linear", DecayShape::kLinear},
                                                   {"cosine", DecayShape::kCosine},
                                                   {"sqrt", DecayShape::kOneMinusSqrt}};

struct LegFlags {
  CharGptFlags recipe;
  std::string run_id;
  std::string dir;
  std::string parent;  ///< empty: starts from scratch
  int64_t from = 0;
  std::optional<int64_t> to;
  std::optional<uint64_t> batch_seed;
  bool keep_weights = false;
  std::vector<std::pair<int64_t, std::string>> means;  ///< step, comma-separated names
  std::optional<DecayShape> mean_shape;                ///< that the means stand for
};

LegFlags ParseLegFlags(int argc, char** argv) {
  LegFlags flags;
  std::string shape = "linear";
  std::string mean_shape;
  const auto add_flags = [&](CLI::App& app) {
    const auto steps = CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max(), "INT >= 0");
    app.add_option("--leg", flags.dir, "Directory for the leg's weights and its state")->required();
    app.add_option("--run-id", flags.run_id, "Name of the run in its journal");
    app.add_option("--decay-shape", shape, "How the rate falls: linear, cosine, or sqrt (1 - sqrt)")
        ->check(CLI::IsMember(kShapes))
        ->capture_default_str();
    app.add_option("--parent", flags.parent,
                   "Directory of the leg whose state this one starts from")
        ->check(CLI::ExistingDirectory);
    app.add_option("--from", flags.from, "Step of the parent's state")->check(steps);
    app.add_option("--to", flags.to, "Last step of the leg [the run's last]")->check(steps);
    app.add_option("--batch-seed", flags.batch_seed, "Draw other batches than the parent would");
    app.add_flag("--keep-weights", flags.keep_weights,
                 "Save the weights of every measured step, not only of the last");
    app.add_option("--mean", flags.means,
                   "Instead of training, measure the mean of these weights (paths relative to the "
                   "folder of "
                   "--leg) as the model of a step")
        ->type_name("STEP FILE,FILE,...")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app.add_option("--mean-shape", mean_shape,
                   "Weight the files of every --mean so that it stands for a decay of this shape")
        ->check(CLI::IsMember(kShapes));
  };
  flags.recipe = ParseCharGptFlags(argc, argv,
                                   "Trains one leg of the study of learning-rate decay. "
                                   "examples/lr_decay_study/study runs the whole study.",
                                   add_flags);
  flags.recipe.schedule.shape = kShapes.at(shape);
  if (!mean_shape.empty()) flags.mean_shape = kShapes.at(mean_shape);
  flags.recipe.trainer.wait = true;
  return flags;
}

void Check(const absl::Status& status, const std::string& what) {
  if (!status.ok()) throw std::runtime_error(what + ": " + std::string(status.message()));
}

/// Every snapshot is measured completely: all probe tokens, and curvature.
MonitorOptions OptionsOf(const LegFlags& flags) {
  MonitorOptions options = MakeMonitorOptions(flags.recipe.trainer, flags.recipe.schedule.steps);
  options.on_failure = OnFailure::kError;
  options.serve.reset();
  // Averages are separate legs.
  options.averaging.enabled = false;
  options.mixed_precision = false;
  options.relative_stderr = 1e-6;
  options.absolute_stderr_ratio = 1e-9;
  options.max_probe_tokens = flags.recipe.probe_sequences * flags.recipe.length;
  options.duty_cycle = 1.0;
  options.max_bytes = kMonitorBytes;
  options.run_id = flags.run_id;
  return options;
}

class Leg {
 public:
  explicit Leg(const LegFlags& flags)
      : flags_(flags), recipe_(flags.recipe), training_(flags.recipe) {
    if (!flags_.parent.empty()) {
      Check(training_.LoadState(flags_.parent + "/state.safetensors"), "loading the state");
    }
    if (flags_.batch_seed) training_.SeedBatches(*flags_.batch_seed);
    const MonitorOptions options = OptionsOf(flags_);
    every_ = options.schedule.every;
    auto monitor = Monitor::Create(training_.MakeSubject(), options);
    Check(monitor.status(), "the monitor");
    monitor_ = *std::move(monitor);
    curvature_subject_ = training_.MakeSubject();
    auto curvature = LossCurvature::Create(*curvature_subject_, options.curvature);
    Check(curvature.status(), "the critical sharpness");
    curvature_ = *std::move(curvature);
  }

  void Make() {
    if (flags_.means.empty()) {
      Train();
    } else {
      MeasureMeans();
    }
    Check(monitor_->Stop(kStopTime), "stopping the monitor");
  }

 private:
  void Train() {
    const int64_t to = flags_.to.value_or(recipe_.schedule.steps);
    for (int64_t step = flags_.from; step < to;) {
      const double learning_rate = recipe_.schedule.LearningRate(step);
      training_.Step(learning_rate, recipe_.SamRho(step));
      Tell(++step, learning_rate);
      if (step % every_ != 0 && step != to) continue;
      Measure();
      if (flags_.keep_weights || step == to) SaveWeights(step);
    }
    Check(training_.SaveState(flags_.dir + "/state.safetensors"), "saving the state");
  }

  void MeasureMeans() {
    for (const auto& [step, names] : flags_.means) {
      std::vector<std::string> files = absl::StrSplit(names, ',');
      for (std::string& file : files) file = fs::path(flags_.dir).parent_path() / file;
      const auto weights = AverageCheckpoints(files, {.shape = flags_.mean_shape});
      Check(weights.status(), "averaging");
      Check(training_.LoadWeights(*weights), "averaging");
      Tell(step, recipe_.schedule.peak);
      Measure();
    }
  }

  void Tell(int64_t step, double learning_rate) {
    monitor_->OnStep({.step = step,
                      .learning_rate = learning_rate,
                      .tokens = step * recipe_.batch * recipe_.length});
  }

  void Measure() {
    Check(monitor_->Finish(kPatience), "measuring");
    const auto newest = monitor_->latest();
    if (newest == nullptr) throw std::runtime_error("no report was made");
    const Report& report = newest->report;
    if (report.probe_status != ProbeStatus::kOk) {
      throw std::runtime_error("step " + std::to_string(report.step) +
                               ": the loss was not measured: " + report.probe_status_detail);
    }
    MeasureSharpness(report.step);
  }

  // Along the gradient of the loss on the curvature batch.
  void MeasureSharpness(int64_t step) {
    Check(curvature_->Reload(), "the critical sharpness");
    const auto gradient = curvature_->Gradient();
    Check(gradient.status(), "the critical sharpness");
    const auto critical = curvature_->CriticalAlong(*gradient * kGradientStep);
    char value[32] = "null";
    if (critical.ok()) {
      std::snprintf(value, sizeof(value), "%.9g", critical->sharpness);
    } else {
      std::fprintf(stderr, "step %lld: %s\n", static_cast<long long>(step),
                   std::string(critical.status().message()).c_str());
    }
    std::ofstream file(flags_.dir + "/sharpness.jsonl", std::ios::app);
    file << "{\"step\": " << step << ", \"critical_sharpness\": " << value << "}\n";
    if (!file.flush()) throw std::runtime_error(flags_.dir + "/sharpness.jsonl: cannot be written");
  }

  void SaveWeights(int64_t step) {
    char name[48];
    std::snprintf(name, sizeof(name), "/weights-%06lld.safetensors", static_cast<long long>(step));
    Check(training_.SaveWeights(flags_.dir + name), "saving weights");
  }

  const LegFlags& flags_;
  const CharGptFlags& recipe_;
  CharTraining training_;
  int64_t every_ = 0;
  std::unique_ptr<Monitor> monitor_;
  std::unique_ptr<Subject> curvature_subject_;
  std::unique_ptr<LossCurvature> curvature_;
};

}  // namespace
}  // namespace ptqwatch::examples

int main(int argc, char** argv) {
  return ptqwatch::examples::RunProgram([&] {
    const auto flags = ptqwatch::examples::ParseLegFlags(argc, argv);
    at::set_num_threads(flags.recipe.trainer.threads);
    at::set_num_interop_threads(1);
    ptqwatch::examples::Leg(flags).Make();
    return 0;
  });
}
