// Trains a small character-level language model, a GPT or an MLP, and watches what post-training
// quantization would cost it.

#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "char_gpt_flags.h"
#include "char_model.h"
#include "console.h"
#include "monitor_setup.h"
#include "progress.h"
#include "ptqwatch/module_subject.h"
#include "ptqwatch/torch_optimizer.h"
#include "sequences.h"
#include "stop_signal.h"
#include "text.h"
#include "torch/nn/utils/clip_grad.h"
#include "torch/optim/adamw.h"
#include "torch/utils.h"
#include "weights_hash.h"

namespace ptqwatch::examples {
namespace {

constexpr double kClipNorm = 1.0;
constexpr int64_t kProbeBatch = 32;
// Sets the calibration draws apart from those of the training batches.
constexpr uint64_t kCalibrationStream = 0x9e3779b97f4a7c15;

std::shared_ptr<CharModel> MakeModel(bool mlp, const ModelConfig& config) {
  return mlp ? MakeMlp(config) : MakeGpt(config);
}

/// AdamW with weight decay on matrices only.
torch::optim::AdamW MakeOptimizer(const torch::nn::Module& model, double weight_decay) {
  std::vector<at::Tensor> matrices;
  std::vector<at::Tensor> vectors;
  for (const at::Tensor& parameter : model.parameters()) {
    (parameter.dim() >= 2 ? matrices : vectors).push_back(parameter);
  }
  const auto options = torch::optim::AdamWOptions().betas({0.9, 0.95});
  const auto group = [&options](std::vector<at::Tensor> parameters, double decay) {
    return torch::optim::OptimizerParamGroup(
        std::move(parameters), std::make_unique<torch::optim::AdamWOptions>(
                                   torch::optim::AdamWOptions(options).weight_decay(decay)));
  };
  return torch::optim::AdamW(
      std::vector{group(std::move(matrices), weight_decay), group(std::move(vectors), 0.0)},
      options);
}

/// What the monitor looks at: the probe from the validation part, the calibration data from the
/// training part. The optimizer must outlive it.
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
                return replica->TokenLosses(batch[0], batch[1]);
              },
              .probe = std::move(probe),
              .calibration = MakeBatches(text.training, shape, starts, kProbeBatch),
              .optimizer = [&optimizer, model] { return ViewOf(optimizer, *model); }});
}

struct TrainingResult {
  int64_t steps = 0;
  double seconds = 0;
};

/// The training loop. Ends early when a signal comes; time spent waiting for the monitor does not
/// count. `run` may be null.
TrainingResult Train(CharModel& model, torch::optim::AdamW& optimizer, const Text& text,
                     const CharGptFlags& flags, WatchedRun* run, const StopSignal& stop) {
  const SequenceShape shape{model.inputs(), flags.length};
  const Schedule& schedule = flags.schedule;
  const std::vector<at::Tensor> parameters = model.parameters();
  std::mt19937_64 generator(flags.trainer.seed);
  const at::Tensor x = at::empty({flags.batch, shape.inputs}, at::kLong);
  const at::Tensor y = at::empty({flags.batch, shape.length}, at::kLong);
  bool warned = false;
  std::chrono::duration<double> waited(0);
  Progress progress(schedule.steps);

  const auto start = std::chrono::steady_clock::now();
  int64_t step = 0;
  for (; step < schedule.steps && !stop.requested(); ++step) {
    const double learning_rate = schedule.LearningRate(step);
    for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate);
    FillSequences(text.training, shape, DrawStarts(text.training, shape, flags.batch, generator), x,
                  y);
    const at::Tensor loss = model.TokenLosses(x, y).mean();
    optimizer.zero_grad();
    loss.backward();
    torch::nn::utils::clip_grad_norm_(parameters, kClipNorm);
    optimizer.step();

    const double loss_value = loss.item<double>();
    if (!std::isfinite(loss_value) && !warned) {
      warned = true;
      Console::Get().Warning(absl::StrCat("warning: the loss of step ", step + 1, " is ",
                                          loss_value, "; training goes on"));
    }
    if (run != nullptr) {
      run->OnStep({.step = step + 1,
                   .learning_rate = learning_rate,
                   .tokens = (step + 1) * flags.batch * flags.length,
                   .loss = loss_value});
      if (flags.wait && (step + 1) % flags.trainer.EveryOr(schedule.steps) == 0) {
        const auto wait_start = std::chrono::steady_clock::now();
        run->Finish(stop, /*announce=*/false);
        waited += std::chrono::steady_clock::now() - wait_start;
      }
    }
    progress.Update(step + 1, learning_rate, loss_value);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return {step, (took - waited).count()};
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

/// A message where the text cannot fill a training sequence or the probe.
std::optional<std::string> CheckLength(const Text& text, SequenceShape shape,
                                       const CharGptFlags& flags) {
  const int64_t needed = flags.probe_sequences * shape.characters();
  const int64_t held_out = std::ssize(text.validation);
  // The training part is nine times as long, so it holds a sequence wherever the held-out part
  // does.
  if (held_out >= needed) return std::nullopt;
  return absl::StrCat("--text ", flags.text.empty() ? "(the Bible)" : flags.text,
                      ": too short: --probe-sequences ", flags.probe_sequences, " need ", needed,
                      " characters in its last tenth, which has ", held_out);
}

int Run(const CharGptFlags& flags) {
  const absl::StatusOr<Text> text = LoadText(flags.text);
  if (!text.ok()) return FailWithUsage(std::string(text.status().message()));

  torch::manual_seed(flags.trainer.seed);
  const ModelConfig config{.vocabulary = text->vocabulary,
                           .width = flags.width,
                           .layers = flags.layers,
                           .heads = flags.heads,
                           .length = flags.length};
  const std::shared_ptr<CharModel> model = MakeModel(flags.mlp, config);
  const SequenceShape shape{model->inputs(), flags.length};
  if (const auto message = CheckLength(*text, shape, flags)) return FailWithUsage(*message);
  const std::vector<Batch> probe = MakeBatches(
      text->validation, shape,
      EvenStarts(text->validation, shape, flags.probe_sequences, kProbeBatch), kProbeBatch);

  torch::optim::AdamW optimizer = MakeOptimizer(*model, flags.weight_decay);
  const StopSignal stop;
  std::unique_ptr<WatchedRun> run;
  if (flags.trainer.monitor) {
    auto started = WatchedRun::Start(MakeSubject(model, optimizer, *text, flags, config, probe),
                                     flags.trainer, flags.schedule.steps);
    if (!started.ok()) return FailWithUsage(std::string(started.status().message()));
    run = std::move(*started);
  }
  const TrainingResult result = Train(*model, optimizer, *text, flags, run.get(), stop);
  return EndRun({.steps = result.steps,
                 .seconds = result.seconds,
                 .weights_sha256 = [&] { return WeightsSha256(*model); },
                 .validation_loss = [&] { return MeanLoss(*model, probe); }},
                flags.trainer.linger_seconds, stop, run.get());
}

}  // namespace
}  // namespace ptqwatch::examples

int main(int argc, char** argv) {
  ptqwatch::examples::CharGptFlags flags;
  if (const auto exit_code = ptqwatch::examples::ParseCharGptFlags(argc, argv, &flags)) {
    return *exit_code;
  }
  // This process is the trainer's, so its thread counts are ours to set.
  at::set_num_threads(flags.trainer.threads);
  at::set_num_interop_threads(1);
  try {
    return ptqwatch::examples::Run(flags);
  } catch (const std::exception& error) {
    ptqwatch::examples::Console::Get().Warning(absl::StrCat("char_gpt: ", error.what()));
    return 1;
  }
}
