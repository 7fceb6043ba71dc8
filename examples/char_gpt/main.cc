// Trains a small character-level language model, a GPT or an MLP, and watches what quantization
// would cost it. Everything about the monitor is in this file: MakeSubject says what is measured,
// StartMonitor where the reports go, Train calls OnStep, and Run ends with Finish and Stop.

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "char_gpt_flags.h"
#include "char_model.h"
#include "exporters.h"
#include "optimizer.h"
#include "program.h"
#include "ptqwatch/module_subject.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/torch_optimizer.h"
#include "sequences.h"
#include "stop_signal.h"
#include "text.h"
#include "torch/nn/utils/clip_grad.h"
#include "torch/utils.h"
#include "weights_hash.h"

namespace ptqwatch::examples {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kClipNorm = 1.0;
constexpr int64_t kProbeBatch = 32;
// Keeps the calibration draws apart from those of the training batches.
constexpr uint64_t kCalibrationStream = 0x9e3779b97f4a7c15;

std::shared_ptr<CharModel> MakeModel(bool mlp, const ModelConfig& config) {
  return mlp ? MakeMlp(config) : MakeGpt(config);
}

/// What is measured. Losses are compared on held-out text, GPTQ is calibrated on training text. The
/// closures own what they capture, except the optimizer, which must outlive the monitor.
std::unique_ptr<Subject> MakeSubject(const std::shared_ptr<CharModel>& model,
                                     const torch::optim::AdamW& optimizer, const Text& text,
                                     const CharGptFlags& flags, const ModelConfig& config,
                                     std::vector<Batch> probe) {
  const SequenceShape shape{model->inputs(), config.length};
  std::mt19937_64 generator(flags.trainer.seed ^ kCalibrationStream);
  const auto starts = DrawStarts(text.training, shape, flags.calibration_sequences, generator);
  return MakeModuleSubject(
      model, {.replica = [mlp = flags.mlp, config] { return MakeModel(mlp, config); },
              .losses = [](std::shared_ptr<CharModel>& replica, const Batch& batch) -> LossValues {
                CharModel::Answers answers = replica->TokenAnswers(batch[0], batch[1]);
                LossValues losses(std::move(answers.losses));
                losses.correct = std::move(answers.correct);
                return losses;
              },
              .probe = std::move(probe),
              .calibration = MakeBatches(text.training, shape, starts, kProbeBatch),
              .optimizer = [&optimizer, model] { return ViewOf(optimizer, *model); }});
}

/// With --run-dir, reports are also kept in a journal.
std::unique_ptr<Monitor> StartMonitor(std::unique_ptr<Subject> subject, const CharGptFlags& flags) {
  Exporters exporters = MakeExporters(flags.trainer);
  const MonitorOptions options = MakeMonitorOptions(flags.trainer, flags.schedule.steps);
  auto monitor =
      OrUsageError(Monitor::Create(std::move(subject), options, std::move(exporters.list)));
  // The first line of the description says how much is covered; the rest lists the layers.
  const std::string plan = monitor->Describe();
  std::printf("%s%s\n", exporters.addresses.c_str(),
              plan.substr(0, plan.find_first_of(":\n")).c_str());
  return monitor;
}

struct TrainingResult {
  int64_t steps = 0;
  double seconds = 0;  ///< without waiting for the monitor
};

/// The training loop; a signal ends it early. `monitor` may be null.
TrainingResult Train(CharModel& model, torch::optim::AdamW& optimizer, const Text& text,
                     const CharGptFlags& flags, Monitor* monitor, const StopSignal& stop) {
  const SequenceShape shape{model.inputs(), flags.length};
  const Schedule& schedule = flags.schedule;
  const std::vector<at::Tensor> parameters = model.parameters();
  std::mt19937_64 generator(flags.trainer.seed);
  const at::Tensor x = at::empty({flags.batch, shape.inputs}, at::kLong);
  const at::Tensor y = at::empty({flags.batch, shape.length}, at::kLong);
  Clock::duration waited{};
  int64_t due = 0;

  const auto start = Clock::now();
  int64_t step = 0;
  while (step < schedule.steps && !stop.requested()) {
    const double learning_rate = schedule.LearningRate(step);
    for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate);
    FillSequences(text.training, shape, DrawStarts(text.training, shape, flags.batch, generator), x,
                  y);
    const at::Tensor loss = model.TokenLosses(x, y).mean();
    optimizer.zero_grad();
    loss.backward();
    torch::nn::utils::clip_grad_norm_(parameters, kClipNorm);
    optimizer.step();
    ++step;

    if (monitor == nullptr) continue;
    monitor->OnStep({.step = step,
                     .learning_rate = learning_rate,
                     .tokens = step * flags.batch * flags.length,
                     .loss = loss.item<double>()});
    if (flags.trainer.wait && DueSnapshots(*monitor) > due) {
      due = DueSnapshots(*monitor);
      const auto wait_start = Clock::now();
      stop.Finish(*monitor);
      waited += Clock::now() - wait_start;
    }
  }
  return {step, std::chrono::duration<double>(Clock::now() - start - waited).count()};
}

double MeanLoss(CharModel& model, const std::vector<Batch>& batches) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  int64_t count = 0;
  for (const Batch& batch : batches) {
    sum += model.TokenLosses(batch[0], batch[1]).sum().item<double>();
    count += batch[1].numel();
  }
  return sum / static_cast<double>(count);
}

std::vector<Batch> MakeProbe(const Text& text, SequenceShape shape, const CharGptFlags& flags) {
  const int64_t needed = flags.probe_sequences * shape.characters();
  const int64_t held_out = std::ssize(text.validation);
  // The training part is nine times as long, so it holds a sequence if the held-out part does.
  if (held_out < needed) {
    throw UsageError("--text " + (flags.trainer.text.empty() ? "(the Bible)" : flags.trainer.text) +
                     ": too short: --probe-sequences " + std::to_string(flags.probe_sequences) +
                     " need " + std::to_string(needed) +
                     " characters in its last tenth, which has " + std::to_string(held_out));
  }
  return MakeBatches(text.validation, shape,
                     EvenStarts(text.validation, shape, flags.probe_sequences, kProbeBatch),
                     kProbeBatch);
}

int Run(const CharGptFlags& flags) {
  const Text text = OrUsageError(LoadText(flags.trainer.text));
  torch::manual_seed(flags.trainer.seed);
  const ModelConfig config{.vocabulary = text.vocabulary,
                           .width = flags.width,
                           .layers = flags.layers,
                           .heads = flags.heads,
                           .length = flags.length};
  const std::shared_ptr<CharModel> model = MakeModel(flags.mlp, config);
  const std::vector<Batch> probe = MakeProbe(text, {model->inputs(), flags.length}, flags);
  torch::optim::AdamW optimizer = MakeOptimizer(*model, flags.weight_decay);
  const StopSignal stop;
  std::unique_ptr<Monitor> monitor;
  if (flags.trainer.monitor) {
    monitor = StartMonitor(MakeSubject(model, optimizer, text, flags, config, probe), flags);
  }

  const TrainingResult result = Train(*model, optimizer, text, flags, monitor.get(), stop);

  // Exporters go on serving until Stop.
  if (monitor) stop.Finish(*monitor);
  if (stop.requested()) std::printf("interrupted after step %ld\n", result.steps);
  std::printf("training seconds %.3f\n", result.seconds);
  std::printf("weights sha256 %s\n", WeightsSha256(*model).c_str());
  if (!stop.requested()) std::printf("validation loss %.4f\n", MeanLoss(*model, probe));
  if (monitor) {
    stop.Sleep(std::chrono::milliseconds(std::llround(1e3 * flags.trainer.linger_seconds)));
    monitor->Stop(std::chrono::seconds(5)).IgnoreError();
  }
  return stop.exit_code();
}

}  // namespace
}  // namespace ptqwatch::examples

int main(int argc, char** argv) {
  return ptqwatch::examples::RunProgram([&] {
    const auto flags = ptqwatch::examples::ParseCharGptFlags(argc, argv);
    // This process is the trainer's, so it may set the number of threads.
    at::set_num_threads(flags.trainer.threads);
    at::set_num_interop_threads(1);
    return ptqwatch::examples::Run(flags);
  });
}
