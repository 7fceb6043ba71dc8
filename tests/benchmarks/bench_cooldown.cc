// How well a shadow cooldown predicts what the decay of a run ends with, and what it costs. Trains
// char_gpt's model through the plateau; from a snapshot there it simulates decays of 1/16 to all of
// the planned steps; then it lets the real decay run and measures its end. Prints, for the lengths
// that are the default and for others, prediction / truth - 1 for each seed, how often the truth is
// in the 95 % interval, and the steps that the simulation takes as a share of the run's.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "analysis/decay_end.h"
#include "char_training.h"
#include "program.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/offline/shadow_cooldown.h"

namespace ptqwatch::benchmarks {
namespace {

using examples::CharGptFlags;
using examples::CharTraining;
using Clock = std::chrono::steady_clock;

struct LengthSet {
  const char* name;
  std::vector<int> divisors;  // of the planned steps
};
const LengthSet kSets[] = {{"1/8+1/4+1/2 (default)", {8, 4, 2}},
                           {"1/16+1/8+1/4", {16, 8, 4}},
                           {"1/16+1/4", {16, 4}},
                           {"1/1", {1}},
                           {"1/2", {2}},
                           {"1/4", {4}},
                           {"1/8", {8}},
                           {"1/16", {16}}};
const std::vector<double> kAllLengths = {1.0 / 16, 1.0 / 8, 1.0 / 4, 1.0 / 2, 1};

const std::vector<QuantizerSpec>& Quantizers() {
  static const std::vector<QuantizerSpec> quantizers = {
      {.method = QuantizationMethod::kGptq, .bits = 3, .group_size = 64},
      {.method = QuantizationMethod::kGptq, .bits = 4, .group_size = 64},
      {.method = QuantizationMethod::kRtn, .bits = 3, .group_size = 64}};
  return quantizers;
}

// What the end of the real decay is like, in a form that predictions have, too.
SimulatedDecay MeasureNow(CharTraining& training) {
  MonitorOptions options;
  options.on_failure = OnFailure::kError;
  options.quantizers = Quantizers();
  options.curvature.enabled = false;
  options.averaging.enabled = false;
  options.adapt_plan = false;
  options.duty_cycle = 1;
  auto monitor = examples::OrUsageError(Monitor::Create(training.MakeSubject(), options));
  monitor->OnStep({.step = 1});
  if (const absl::Status done = monitor->Finish(std::chrono::minutes(5)); !done.ok()) {
    throw examples::UsageError(std::string(done.message()));
  }
  const Report& report = monitor->latest()->report;
  SimulatedDecay end;
  end.loss_nats = report.probe_loss_nats;
  for (const QuantizationReport& quantizer : report.quantization) {
    end.quantization.push_back(
        {quantizer.method, quantizer.bits, quantizer.error_ratio, quantizer.error_ratio_stderr});
  }
  return end;
}

struct Run {
  PredictedEnd simulated;
  SimulatedDecay truth;
  double step_seconds = 0;
  int64_t steps = 0;
};

Run Simulate(CharGptFlags flags, uint64_t seed, double from) {
  flags.trainer.seed = seed;
  CharTraining training(flags);
  const auto& schedule = flags.schedule;
  const auto snapshot = std::llround(from * static_cast<double>(schedule.steps));
  Run run;
  run.steps = schedule.steps;
  double training_seconds = 0;
  const auto train = [&](int64_t begin, int64_t end) {
    const auto start = Clock::now();
    for (int64_t step = begin; step < end; ++step) training.Step(schedule.LearningRate(step));
    training_seconds += std::chrono::duration<double>(Clock::now() - start).count();
  };
  train(0, snapshot);
  const auto subject = training.MakeSubject();
  ShadowCooldownOptions options;
  options.cooldown.decay_steps = schedule.decay_steps;
  options.cooldown.lengths = kAllLengths;
  options.learning_rate = schedule.peak;
  options.step = snapshot;
  options.quantizers = Quantizers();
  options.seed = seed;
  run.simulated = examples::OrUsageError(RunShadowCooldown(*subject, options));
  train(snapshot, schedule.steps);
  run.truth = MeasureNow(training);
  run.step_seconds = training_seconds / static_cast<double>(schedule.steps);
  return run;
}

// The prediction from the simulated decays of some lengths alone.
PredictedEnd Only(const PredictedEnd& all, const std::vector<int>& divisors) {
  PredictedEnd end = all;
  end.simulated_steps = 0;
  end.seconds = 0;
  std::erase_if(end.decays, [&](const SimulatedDecay& decay) {
    return std::none_of(divisors.begin(), divisors.end(),
                        [&](int divisor) { return decay.steps == all.decay_steps / divisor; });
  });
  for (const SimulatedDecay& decay : end.decays) {
    end.simulated_steps += decay.settle_steps + decay.steps;
    end.seconds += decay.seconds;
  }
  internal::PredictEnd(end);
  return end;
}

void PrintSet(const LengthSet& set, const std::vector<Run>& runs) {
  std::printf("%-22s", set.name);
  double squares = 0;
  int covered = 0;
  PredictedEnd end;
  for (const Run& run : runs) {
    end = Only(run.simulated, set.divisors);
    const PredictedError& error = end.quantization[0];
    const double truth = *run.truth.quantization[0].error_ratio;
    const double off = *error.error_ratio / truth - 1;
    squares += off * off;
    covered += truth >= *error.error_low_ratio && truth <= *error.error_high_ratio;
    std::printf(" %+5.1f", 100 * off);
  }
  const auto n = static_cast<double>(runs.size());
  const Run& last = runs.back();
  std::printf("  %5.1f  %d of %zu  +-%4.0f %%  %5.1f %% (%.1f s)\n", 100 * std::sqrt(squares / n),
              covered, runs.size(),
              50 * (*end.quantization[0].error_high_ratio - *end.quantization[0].error_low_ratio) /
                  *end.quantization[0].error_ratio,
              100 * static_cast<double>(end.simulated_steps) / static_cast<double>(last.steps),
              end.seconds);
}

void PrintRun(const Run& run, uint64_t seed) {
  std::printf("seed %lu: step %.2f ms; loss", seed, 1e3 * run.step_seconds);
  for (const SimulatedDecay& decay : run.simulated.decays) std::printf(" %.4f", *decay.loss_nats);
  std::printf(", real %.4f\n", *run.truth.loss_nats);
  for (size_t i = 0; i < Quantizers().size(); ++i) {
    const QuantizerSpec& spec = Quantizers()[i];
    std::printf("  %s %%:", ShortName(KeyOf(spec)).c_str());
    for (const SimulatedDecay& decay : run.simulated.decays) {
      std::printf(" %.2f", 100 * *decay.quantization[i].error_ratio);
    }
    std::printf(", real %.2f\n", 100 * *run.truth.quantization[i].error_ratio);
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace ptqwatch::benchmarks

int main(int argc, char** argv) {
  return ptqwatch::examples::RunProgram([&] {
    using namespace ptqwatch::benchmarks;
    int seeds = 5;
    double from = 0.5;
    const auto flags = ptqwatch::examples::ParseCharGptFlags(
        argc, argv, "Compares what shadow cooldowns predict with what the decay gives.",
        [&](CLI::App& app) {
          app.add_option("--seeds", seeds, "Runs, from --seed on")
              ->check(CLI::Range(1, 1000))
              ->capture_default_str();
          app.add_option("--from", from, "Share of the run at which the snapshot is taken")
              ->check(CLI::Range(0.0, 1.0))
              ->capture_default_str();
        });
    at::set_num_threads(flags.trainer.threads);
    std::vector<Run> runs;
    for (int i = 0; i < seeds; ++i) {
      const uint64_t seed = flags.trainer.seed + static_cast<uint64_t>(i);
      runs.push_back(Simulate(flags, seed, from));
      PrintRun(runs.back(), seed);
    }
    std::printf(
        "gptq3, prediction / real - 1 in %%, by seed; root mean square; real in the interval; "
        "half its width; steps of the run\n");
    for (const LengthSet& set : kSets) PrintSet(set, runs);
    return 0;
  });
}
