// The trainer of char_gpt, which reacts when the monitor reports that the decay of the learning
// rate makes quantization worse. MonitorOptions::on_alert sets an atomic. The training loop reads
// it and ends the decay, and the run ends with the mean of its last weights (Reaction).

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "ATen/Parallel.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/from_blob.h"
#include "act_flags.h"
#include "char_training.h"
#include "program.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/offline/quantize_model.h"
#include "reaction.h"
#include "start_monitor.h"
#include "stop_signal.h"
#include "training_time.h"
#include "weights_hash.h"

namespace ptqwatch::examples {
namespace {

constexpr int kBits = 3;

std::unique_ptr<Monitor> Watch(const CharTraining& training, const Reaction& reaction,
                               const CharGptFlags& flags) {
  MonitorOptions options = MakeMonitorOptions(flags.trainer, flags.schedule.steps);
  options.on_alert = reaction.OnAlert();
  return StartMonitor(training.MakeSubject(), std::move(options));
}

/// Returns the training time in seconds, without waiting for the monitor. `monitor` may be null.
double Train(CharTraining& training, Reaction& reaction, const CharGptFlags& flags,
             Monitor* monitor, const StopSignal& stop) {
  TrainingTime time(monitor, flags.trainer.wait, stop);
  for (int64_t step = 1; step <= flags.schedule.steps && !stop.requested(); ++step) {
    const double learning_rate = reaction.LearningRate(step - 1);
    training.Step(learning_rate, flags.SamRho(step - 1));
    reaction.AfterStep(step);
    if (monitor == nullptr) continue;
    monitor->OnStep({.step = step,
                     .learning_rate = learning_rate,
                     .tokens = step * flags.batch * flags.length});
    time.AfterStep();
  }
  return time.seconds();
}

/// Gives the model GPTQ's weights and returns its loss on the held-out text.
double QuantizedLoss(CharTraining& training, const TrainerFlags& flags) {
  const std::unique_ptr<Subject> subject = training.MakeSubject();
  const auto quantized = QuantizeModel(
      *subject,
      {.spec = {.method = QuantizationMethod::kGptq, .bits = kBits, .group_size = flags.group_size},
       .calibration_mode = ParseCalibrationMode(flags.calibration).value()});
  if (!quantized.ok()) throw std::runtime_error(quantized.status().ToString());
  const at::NoGradGuard no_grad;
  auto parameters = training.model().named_parameters();
  for (const QuantizedLayer& layer : quantized->layers) {
    if (layer.weight.dequantized.empty()) {
      throw std::runtime_error(layer.name + ": " + layer.weight.status_detail);
    }
    const at::Tensor weight = at::from_blob(const_cast<float*>(layer.weight.dequantized.data()),
                                            {layer.outputs, layer.inputs}, at::kFloat);
    parameters[layer.name].copy_(layer.transposed ? weight.t() : weight);
  }
  return training.ValidationLoss();
}

int Run(const ActFlags& flags) {
  const CharGptFlags& recipe = flags.recipe;
  CharTraining training(recipe);
  Reaction reaction(flags, training.model());
  const StopSignal stop;
  std::unique_ptr<Monitor> monitor;
  if (recipe.trainer.monitor) monitor = Watch(training, reaction, recipe);

  const double seconds = Train(training, reaction, recipe, monitor.get(), stop);

  if (monitor) stop.Finish(*monitor);
  const auto alarm = reaction.alarm_step();
  std::printf("alarm %s\n", alarm ? ("step " + std::to_string(*alarm)).c_str() : "none");
  std::printf("training seconds %.3f\n", seconds);
  if (!stop.requested()) reaction.Finish();
  std::printf("weights sha256 %s\n", WeightsSha256(training.model()).c_str());
  if (!stop.requested()) {
    std::printf("validation loss %.4f\n", training.ValidationLoss());
    std::printf("quantized loss %d bits %.4f\n", kBits, QuantizedLoss(training, recipe.trainer));
  }
  return stop.Linger(monitor.get(), recipe.trainer.linger_seconds);
}

}  // namespace
}  // namespace ptqwatch::examples

int main(int argc, char** argv) {
  return ptqwatch::examples::RunProgram([&] {
    const auto flags = ptqwatch::examples::ParseActFlags(argc, argv);
    // The process belongs to the trainer, so it may set the number of threads.
    at::set_num_threads(flags.recipe.trainer.threads);
    at::set_num_interop_threads(1);
    return ptqwatch::examples::Run(flags);
  });
}
