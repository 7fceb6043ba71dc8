#include "train_leg.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "char_training.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/offline/average_weights.h"

namespace ptqwatch::examples {
namespace {

namespace fs = std::filesystem;

// A machine may sleep, or have other things to do.
constexpr std::chrono::hours kPatience(24);
constexpr std::chrono::seconds kStopTime(30);
// Enough for everything, and the same on every machine.
constexpr int64_t kMonitorBytes = int64_t{1} << 30;

void Check(const absl::Status& status, const std::string& what) {
  if (!status.ok()) throw std::runtime_error(what + ": " + std::string(status.message()));
}

CharGptFlags FlagsOf(const Leg& leg, const StudySettings& settings, const StudyDir& dir) {
  CharGptFlags flags;
  flags.mlp = true;
  flags.trainer.seed = static_cast<uint64_t>(leg.seed);
  flags.trainer.text = dir.text().string();
  flags.schedule = leg.schedule;
  flags.weight_decay = leg.weight_decay;
  flags.width = settings.width;
  flags.layers = settings.layers;
  flags.length = settings.length;
  flags.batch = settings.batch;
  flags.probe_sequences = settings.probe_sequences;
  flags.calibration_sequences = settings.calibration_sequences;
  return flags;
}

/// Every snapshot is measured whole: all probe tokens, curvature too.
MonitorOptions OptionsOf(const Leg& leg, const StudySettings& settings, const StudyDir& dir) {
  MonitorOptions options;
  options.on_failure = OnFailure::kError;
  options.schedule.every = leg.means.empty() ? settings.every : 1;
  options.schedule.decay_density = 1;
  for (QuantizerSpec& spec : options.quantizers) {
    spec.group_size = static_cast<int>(settings.group_size);
  }
  // Averages are runs of their own here.
  options.averaging.enabled = false;
  options.mixed_precision = false;
  options.relative_stderr = 1e-6;
  options.absolute_stderr_ratio = 1e-9;
  options.max_probe_tokens = settings.probe_sequences * settings.length;
  options.seed = static_cast<uint64_t>(leg.seed);
  options.adapt_plan = false;
  options.duty_cycle = 1.0;
  options.max_bytes = kMonitorBytes;
  options.training_threads = 1;
  // A branch goes on with the trunk's journal, and so with its run's name.
  if (leg.parent.empty()) options.run_id = leg.run;
  options.run_dir = (dir.part(leg.id) / "run").string();
  return options;
}

/// The run's journal so far becomes the beginning of this leg's.
void CopyJournal(const Leg& leg, const StudyDir& dir) {
  const fs::path target = dir.part(leg.id) / "run";
  fs::create_directories(target);
  if (leg.parent.empty()) return;
  fs::copy(dir.journal(leg.parent), target, fs::copy_options::recursive);
  fs::remove(target / "lock");
  fs::remove(target / "status.json");
}

void Measure(Monitor& monitor) {
  Check(monitor.Finish(kPatience), "measuring");
  const auto newest = monitor.latest();
  if (newest == nullptr) throw std::runtime_error("no report was made");
  const Report& report = newest->report;
  if (report.probe_status != ProbeStatus::kOk) {
    throw std::runtime_error("step " + std::to_string(report.step) +
                             ": the loss was not measured: " + report.probe_status_detail);
  }
}

void Train(const Leg& leg, const StudySettings& settings, const StudyDir& dir,
           CharTraining& training, Monitor& monitor) {
  for (int64_t step = leg.from; step < leg.to;) {
    const double learning_rate = leg.schedule.LearningRate(step);
    training.Step(learning_rate);
    ++step;
    monitor.OnStep({.step = step,
                    .learning_rate = learning_rate,
                    .tokens = step * settings.batch * settings.length});
    if (step % settings.every != 0 && step != leg.to) continue;
    Measure(monitor);
    if (!leg.keeps_weights && step != leg.to) continue;
    Check(training.SaveWeights((dir.part(leg.id) / StudyDir::WeightsName(step)).string()),
          "saving weights");
  }
  Check(training.SaveState((dir.part(leg.id) / "state.safetensors").string()), "saving the state");
}

void MeasureMeans(const Leg& leg, const StudySettings& settings, const StudyDir& dir,
                  CharTraining& training, Monitor& monitor) {
  for (const WeightsMean& mean : leg.means) {
    std::vector<std::string> paths;
    for (const KeptWeights& kept : mean.members) {
      paths.push_back(dir.weights(kept.leg, kept.step).string());
    }
    const auto weights = AverageCheckpoints(paths);
    Check(weights.status(), "averaging");
    Check(training.LoadWeights(*weights), "averaging");
    monitor.OnStep({.step = mean.step,
                    .learning_rate = settings.peak,
                    .tokens = mean.step * settings.batch * settings.length});
    Measure(monitor);
  }
}

}  // namespace

void MakeLeg(const Leg& leg, const StudySettings& settings, const StudyDir& dir) {
  const auto start = std::chrono::steady_clock::now();
  fs::remove_all(dir.part(leg.id));
  CopyJournal(leg, dir);
  CharTraining training(FlagsOf(leg, settings, dir));
  if (!leg.parent.empty()) {
    Check(training.LoadState(dir.state(leg.parent).string()), "loading the state");
  }
  if (leg.batch_seed) training.SeedBatches(*leg.batch_seed);
  auto monitor = Monitor::Create(training.MakeSubject(), OptionsOf(leg, settings, dir));
  Check(monitor.status(), "the monitor");
  if (leg.means.empty()) {
    Train(leg, settings, dir, training, **monitor);
  } else {
    MeasureMeans(leg, settings, dir, training, **monitor);
  }
  Check((*monitor)->Stop(kStopTime), "stopping the monitor");
  monitor->reset();
  dir.KeepSeconds(leg.id,
                  std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  dir.Finish(leg.id);
}

}  // namespace ptqwatch::examples
