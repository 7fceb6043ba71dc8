// Trains a small character-level language model, a GPT or an MLP, and watches how much quantization
// would cost it. CharTraining::MakeSubject defines the measured model and batches. The rest of the
// monitor's use is in this file: Watch creates it, Train calls OnStep, Run ends it.

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "ATen/Parallel.h"
#include "char_gpt_flags.h"
#include "char_training.h"
#include "program.h"
#include "ptqwatch/monitor.h"
#include "start_monitor.h"
#include "stop_signal.h"
#include "training_time.h"
#include "weights_hash.h"

namespace ptqwatch::examples {
namespace {

/// Creates the monitor. With --run-dir it also keeps a journal.
std::unique_ptr<Monitor> Watch(std::unique_ptr<Subject> subject, const CharGptFlags& flags) {
  MonitorOptions options = MakeMonitorOptions(flags.trainer, flags.schedule.steps);
  options.cooldown.decay_steps = flags.schedule.decay_steps;
  options.cooldown.every_snapshots = flags.cooldown_every;
  auto monitor = StartMonitor(std::move(subject), std::move(options));
  // The first line of the description gives the coverage; the rest lists the layers.
  const std::string plan = monitor->Describe();
  std::printf("%s\n", plan.substr(0, plan.find_first_of(":\n")).c_str());
  return monitor;
}

struct TrainingResult {
  int64_t steps = 0;
  double seconds = 0;  ///< without waiting for the monitor
};

/// The training loop. A signal ends it early. `monitor` may be null.
TrainingResult Train(CharTraining& training, const CharGptFlags& flags, Monitor* monitor,
                     const StopSignal& stop) {
  TrainingTime time(monitor, flags.trainer.wait, stop);
  int64_t step = 0;
  while (step < flags.schedule.steps && !stop.requested()) {
    const double learning_rate = flags.schedule.LearningRate(step);
    const at::Tensor loss = training.Step(learning_rate, flags.SamRho(step));
    ++step;

    if (monitor == nullptr) continue;
    monitor->OnStep({.step = step,
                     .learning_rate = learning_rate,
                     .tokens = step * flags.batch * flags.length,
                     .loss = loss.item<double>()});
    time.AfterStep();
  }
  return {step, time.seconds()};
}

int Run(const CharGptFlags& flags) {
  CharTraining training(flags);
  const StopSignal stop;
  std::unique_ptr<Monitor> monitor;
  if (flags.trainer.monitor) monitor = Watch(training.MakeSubject(), flags);

  const TrainingResult result = Train(training, flags, monitor.get(), stop);

  if (monitor) stop.Finish(*monitor);
  if (stop.requested()) std::printf("interrupted after step %ld\n", result.steps);
  std::printf("training seconds %.3f\n", result.seconds);
  std::printf("weights sha256 %s\n", WeightsSha256(training.model()).c_str());
  if (!stop.requested()) std::printf("validation loss %.4f\n", training.ValidationLoss());
  return stop.Linger(monitor.get(), flags.trainer.linger_seconds);
}

}  // namespace
}  // namespace ptqwatch::examples

int main(int argc, char** argv) {
  return ptqwatch::examples::RunProgram([&] {
    const auto flags = ptqwatch::examples::ParseCharGptFlags(
        argc, argv,
        "Trains a small character-level language model and watches what quantization would cost "
        "it.");
    // The process belongs to the trainer, so it may set the number of threads.
    at::set_num_threads(flags.trainer.threads);
    at::set_num_interop_threads(1);
    return ptqwatch::examples::Run(flags);
  });
}
