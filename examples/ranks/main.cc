// A data-parallel trainer: several processes with equal weights, each on batches of its own, and a
// monitor in each. The monitors share the work and never talk to each other. For that, the trainer
// gives them their rank and one run directory; the rest is as in any trainer.
//
// With --sharded each process keeps and updates a part of each parameter. Its monitor copies that
// part, and one process, this program again, measures the whole model.

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "char_training.h"
#include "checkpoints.h"
#include "program.h"
#include "ptqwatch/measure_for_trainer.h"
#include "ptqwatch/monitor.h"
#include "rank_group.h"
#include "ranks_flags.h"
#include "report_printer.h"
#include "sharded_parameters.h"
#include "start_monitor.h"
#include "stop_signal.h"
#include "training_time.h"
#include "weights_hash.h"

namespace ptqwatch::examples {
namespace {

MonitorOptions OptionsOf(const RanksFlags& flags) {
  MonitorOptions options = MakeMonitorOptions(flags.recipe.trainer, flags.recipe.schedule.steps);
  options.rank = flags.rank;
  options.ranks = flags.ranks;
  return options;
}

std::unique_ptr<Monitor> WatchParts(const CharTraining& training,
                                    const ShardedParameters& parameters, MonitorOptions options,
                                    std::vector<std::string> arguments) {
  options.process = ProcessOptions{.arguments = std::move(arguments)};
  return StartMonitor(training.MakeSubject([&] { return parameters.parts(); },
                                           [&] { return std::optional(parameters.Optimizer()); }),
                      std::move(options));
}

int Measure(const RanksFlags& flags) {
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<ReportPrinter>());
  return MeasureForTrainer(CharTraining(flags.recipe).MakeSubject(), OptionsOf(flags),
                           std::move(exporters));
}

void Require(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}

/// Continues the newest checkpoint and returns its step; 0 without one.
int64_t Continue(CharTraining& training, const RanksFlags& flags) {
  if (flags.checkpoints.empty()) return 0;
  const int64_t step = NewestCheckpoint(flags.checkpoints);
  if (step == 0) return 0;
  Require(training.LoadState(CheckpointPath(flags.checkpoints, step)));
  std::printf("continues after step %ld\n", step);
  return step;
}

void Save(const CharTraining& training, const RanksFlags& flags, int64_t step) {
  if (flags.rank != 0 || flags.checkpoints.empty() || step % flags.checkpoint_every != 0) return;
  std::filesystem::create_directories(flags.checkpoints);
  Require(training.SaveState(CheckpointPath(flags.checkpoints, step)));
  std::printf("checkpoint step %ld\n", step);
}

/// Damages a weight of one rank, as a faulty memory, link or kernel does. Rounding in later steps
/// may absorb the lowest bits; this one stays.
void FlipABit(CharModel& model, int64_t step, int64_t rank) {
  const auto parameters = model.named_parameters();
  const auto& last = parameters[parameters.size() - 1];
  float* const weight = last.value().mutable_data_ptr<float>();
  uint32_t bits = 0;
  std::memcpy(&bits, weight, sizeof(bits));
  bits ^= 1U << 11;
  std::memcpy(weight, &bits, sizeof(bits));
  std::printf("flipped a bit of %s of rank %ld after step %ld\n", last.key().c_str(), rank, step);
}

/// The training loop. Returns the last step.
int64_t Train(CharTraining& training, RankGroup& group, ShardedParameters* sharded,
              const RanksFlags& flags, Monitor* monitor, const StopSignal& stop) {
  const CharGptFlags& recipe = flags.recipe;
  const std::vector<at::Tensor> parameters = training.model().parameters();
  TrainingTime time(monitor, recipe.trainer.wait, stop);
  int64_t step = Continue(training, flags);
  while (step < recipe.schedule.steps && !stop.requested()) {
    const double learning_rate = recipe.schedule.LearningRate(step);
    // By step and rank alone, so that another number of ranks can continue the run.
    training.SeedBatches(recipe.trainer.seed +
                         static_cast<uint64_t>(step * flags.ranks + flags.rank));
    at::Tensor loss;
    try {
      const auto average = [&] { group.AverageGradients(parameters); };
      if (sharded == nullptr) {
        loss = training.Step(learning_rate, recipe.SamRho(step), average);
      } else {
        loss = training.Gradients(recipe.SamRho(step), average);
        sharded->Step(learning_rate);
      }
    } catch (const Stopped&) {
      return step;
    }
    ++step;
    if (step == flags.flip_step && flags.rank == flags.flip_rank) {
      FlipABit(training.model(), step, flags.rank);
    }
    if (monitor != nullptr) {
      monitor->OnStep({.step = step,
                       .learning_rate = learning_rate,
                       .tokens = step * recipe.batch * recipe.length * flags.ranks,
                       .loss = loss.item<double>()});
    }
    Save(training, flags, step);
    time.AfterStep();
  }
  return step;
}

int Run(const RanksFlags& flags, std::vector<std::string> arguments) {
  CharTraining training(flags.recipe);
  const StopSignal stop;
  RankGroup group({.store = flags.store,
                   .rank = flags.rank,
                   .ranks = flags.ranks,
                   .timeout = std::chrono::milliseconds(std::llround(1e3 * flags.timeout_seconds)),
                   .stopped = [&] { return stop.requested(); }});
  std::optional<ShardedParameters> sharded;
  if (flags.sharded) {
    sharded.emplace(&training.model(), &group, flags.rank, flags.ranks, flags.recipe.weight_decay);
  }
  std::unique_ptr<Monitor> monitor;
  if (flags.recipe.trainer.monitor && sharded) {
    monitor = WatchParts(training, *sharded, OptionsOf(flags), std::move(arguments));
  } else if (flags.recipe.trainer.monitor) {
    monitor = StartMonitor(training.MakeSubject(), OptionsOf(flags));
  }

  const int64_t steps =
      Train(training, group, sharded ? &*sharded : nullptr, flags, monitor.get(), stop);

  if (monitor) stop.Finish(*monitor);
  std::printf("%s step %ld\n", stop.requested() ? "interrupted after" : "ended at", steps);
  std::printf("weights sha256 %s\n", WeightsSha256(training.model()).c_str());
  return stop.Linger(monitor.get(), flags.recipe.trainer.linger_seconds);
}

}  // namespace
}  // namespace ptqwatch::examples

int main(int argc, char** argv) {
  return ptqwatch::examples::RunProgram([&] {
    const auto flags = ptqwatch::examples::ParseRanksFlags(argc, argv);
    // The process belongs to the trainer, so it may set the number of threads.
    at::set_num_threads(flags.recipe.trainer.threads);
    at::set_num_interop_threads(1);
    if (ptqwatch::IsMeasuringProcess()) return ptqwatch::examples::Measure(flags);
    return ptqwatch::examples::Run(flags, {argv + 1, argv + argc});
  });
}
