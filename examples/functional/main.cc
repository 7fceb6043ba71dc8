// A trainer with its own arrays, forward pass, backward pass and updates that uses the monitor.
// net_subject.cc shows the arrays to the monitor; this file creates the monitor and calls it from
// the training loop.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "adamw.h"
#include "functional_flags.h"
#include "net.h"
#include "net_subject.h"
#include "program.h"
#include "ptqwatch/monitor.h"
#include "start_monitor.h"
#include "stop_signal.h"
#include "text.h"
#include "train.h"
#include "training_time.h"
#include "weights_hash.h"

namespace ptqwatch::examples {
namespace {

constexpr int64_t kProbeWindows = 65536;
constexpr int64_t kCalibrationWindows = 8192;
// Gives calibration other draws than the training batches.
constexpr uint64_t kCalibrationStream = 0x9e3779b97f4a7c15;

/// Equally spaced in the text, then shuffled: a probe that needs few windows takes the first ones,
/// which must be spread over the whole text too.
std::vector<Window> ProbeWindows(std::span<const uint8_t> text, int64_t context) {
  const int64_t choices = std::ssize(text) - context;
  const int64_t count = std::min(kProbeWindows, choices);
  std::vector<Window> windows;
  for (int64_t i = 0; i < count; ++i) windows.push_back(text.data() + i * choices / count);
  std::mt19937_64 generator(0);
  for (size_t i = windows.size(); i > 1; --i) std::swap(windows[i - 1], windows[generator() % i]);
  return windows;
}

std::vector<Window> CalibrationWindows(std::span<const uint8_t> text, int64_t context,
                                       uint64_t seed) {
  std::mt19937_64 generator(seed ^ kCalibrationStream);
  std::vector<Window> windows(kCalibrationWindows);
  const uint64_t choices = text.size() - static_cast<uint64_t>(context);
  for (Window& window : windows) window = text.data() + generator() % choices;
  return windows;
}

std::string HashOf(const Net& net) {
  std::vector<std::span<const std::byte>> arrays;
  for (const Weight& weight : net.weights()) {
    arrays.push_back(std::as_bytes(std::span(weight.values)));
  }
  return Sha256(arrays);
}

int Run(const FunctionalFlags& flags) {
  const Text text = OrUsageError(LoadText(flags.trainer.text));
  Net net({.vocabulary = text.vocabulary}, flags.recipe.seed);
  const int64_t context = net.shape().context;
  if (std::min(std::ssize(text.training), std::ssize(text.validation)) <= context) {
    throw UsageError("--text " + flags.trainer.text +
                     ": too short: " + std::to_string(text.training.size()) +
                     " characters to train on, " + std::to_string(text.validation.size()) +
                     " to validate on; a prediction takes " + std::to_string(context + 1));
  }
  const std::vector<Window> probe = ProbeWindows(text.validation, context);
  AdamW optimizer(&net.weights(), flags.recipe.weight_decay);
  const StopSignal stop;
  std::unique_ptr<Monitor> monitor;
  if (flags.trainer.monitor) {
    const auto calibration = CalibrationWindows(text.training, context, flags.trainer.seed);
    monitor = StartMonitor(MakeNetSubject(net, optimizer, probe, calibration),
                           MakeMonitorOptions(flags.trainer, flags.recipe.steps));
    std::printf("%s", monitor->Describe().c_str());
  }

  int64_t steps = 0;
  TrainingTime time(monitor.get(), flags.trainer.wait, stop);
  Train(net, optimizer, text.training, flags.recipe, [&](const StepInfo& info) {
    steps = info.step;
    if (monitor) monitor->OnStep(info);
    time.AfterStep();
    return !stop.requested();
  });
  const double seconds = time.seconds();

  if (monitor) stop.Finish(*monitor);
  if (stop.requested()) std::printf("interrupted after step %ld\n", steps);
  std::printf("training seconds %.3f\n", seconds);
  std::printf("weights sha256 %s\n", HashOf(net).c_str());
  if (!stop.requested()) std::printf("validation loss %.4f\n", net.Loss(probe));
  return stop.Linger(monitor.get(), flags.trainer.linger_seconds);
}

}  // namespace
}  // namespace ptqwatch::examples

int main(int argc, char** argv) {
  return ptqwatch::examples::RunProgram([&] {
    return ptqwatch::examples::Run(ptqwatch::examples::ParseFunctionalFlags(argc, argv));
  });
}
