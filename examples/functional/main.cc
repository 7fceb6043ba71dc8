// A trainer that owns its arrays and does its own forward pass, backward pass and updates, and is
// watched all the same. See net_subject.cc for how the monitor gets to see it.

#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "adamw.h"
#include "console.h"
#include "functional_flags.h"
#include "monitor_setup.h"
#include "net.h"
#include "net_subject.h"
#include "progress.h"
#include "stop_signal.h"
#include "text.h"
#include "train.h"
#include "weights_hash.h"

namespace ptqwatch::examples {
namespace {

constexpr int64_t kProbeWindows = 65536;
constexpr int64_t kCalibrationWindows = 8192;
// Sets the calibration draws apart from those of the training batches.
constexpr uint64_t kCalibrationStream = 0x9e3779b97f4a7c15;

/// At equal distances in the text, in an order in which those at the front are spread over all of
/// it: a probe that needs few of them takes those.
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
  const absl::StatusOr<Text> text = LoadText(flags.text);
  if (!text.ok()) return FailWithUsage(std::string(text.status().message()));
  Net net({.vocabulary = text->vocabulary}, flags.recipe.seed);
  const int64_t context = net.shape().context;
  if (std::min(std::ssize(text->training), std::ssize(text->validation)) <= context) {
    return FailWithUsage(absl::StrCat("--text ", flags.text, ": too short: ", text->training.size(),
                                      " characters to train on, ", text->validation.size(),
                                      " to validate on; a prediction takes ", context + 1));
  }
  const std::vector<Window> probe = ProbeWindows(text->validation, context);

  AdamW optimizer(&net.weights(), flags.recipe.weight_decay);
  const StopSignal stop;
  std::unique_ptr<WatchedRun> run;
  if (flags.trainer.monitor) {
    auto started = WatchedRun::Start(
        MakeNetSubject(net, optimizer, probe,
                       CalibrationWindows(text->training, context, flags.trainer.seed)),
        flags.trainer, flags.recipe.steps);
    if (!started.ok()) return FailWithUsage(std::string(started.status().message()));
    run = std::move(*started);
  }

  int64_t steps = 0;
  const int64_t every = flags.trainer.EveryOr(flags.recipe.steps);
  std::chrono::duration<double> waited(0);
  const auto start = std::chrono::steady_clock::now();
  {
    Progress progress(flags.recipe.steps);
    Train(net, optimizer, text->training, flags.recipe, [&](const StepInfo& info) {
      if (run != nullptr) {
        run->OnStep(info);
        if (flags.wait && info.step % every == 0) {
          const auto wait_start = std::chrono::steady_clock::now();
          run->Finish(stop, /*announce=*/false);
          waited += std::chrono::steady_clock::now() - wait_start;
        }
      }
      progress.Update(info.step, info.learning_rate, *info.loss);
      steps = info.step;
      return !stop.requested();
    });
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start - waited;

  return EndRun({.steps = steps,
                 .seconds = took.count(),
                 .weights_sha256 = [&] { return HashOf(net); },
                 .validation_loss = [&] { return net.Loss(probe); }},
                flags.trainer.linger_seconds, stop, run.get());
}

}  // namespace
}  // namespace ptqwatch::examples

int main(int argc, char** argv) {
  ptqwatch::examples::FunctionalFlags flags;
  if (const auto exit_code = ptqwatch::examples::ParseFunctionalFlags(argc, argv, &flags)) {
    return *exit_code;
  }
  try {
    return ptqwatch::examples::Run(flags);
  } catch (const std::exception& error) {
    ptqwatch::examples::Console::Get().Warning(absl::StrCat("functional: ", error.what()));
    return 1;
  }
}
