#include "char_training.h"

#include <optional>
#include <string>
#include <utility>

#include "program.h"
#include "ptqwatch/module_subject.h"
#include "ptqwatch/torch_optimizer.h"
#include "sharpness_aware.h"
#include "torch/nn/utils/clip_grad.h"
#include "torch/utils.h"
#include "training_state.h"

namespace ptqwatch::examples {
namespace {

constexpr double kClipNorm = 1.0;
// Weight of the balance losses of a mixture of experts (arXiv 2101.03961, 2409.02060).
constexpr double kBalanceWeight = 0.01;
constexpr int64_t kProbeBatch = 32;
// Gives calibration other draws than the training batches.
constexpr uint64_t kCalibrationStream = 0x9e3779b97f4a7c15;

std::shared_ptr<CharModel> MakeModel(bool mlp, const ModelConfig& config) {
  return mlp ? MakeMlp(config) : MakeGpt(config);
}

std::shared_ptr<CharModel> MakeSeededModel(const CharGptFlags& flags, const ModelConfig& config) {
  torch::manual_seed(flags.trainer.seed);
  return MakeModel(flags.mlp, config);
}

Batches MakeProbe(const Text& text, SequenceShape shape, const CharGptFlags& flags) {
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

// Gives the parameters their clipped gradients and returns the cross-entropy. A mixture's balance
// loss is in the gradients alone, so losses of all models and of the monitor compare.
at::Tensor TakeGradients(
    CharModel& model, const at::Tensor& x, const at::Tensor& y, double sam_rho,
    absl::FunctionRef<void()> on_gradients = [] {}) {
  at::Tensor loss;
  const auto minimised_now = [&] {
    at::Tensor balance;
    loss = model.TokenLosses(x, y, &balance).mean();
    return balance.defined() ? loss + kBalanceWeight * balance : loss;
  };
  const at::Tensor minimised = minimised_now();
  const at::Tensor before = loss;
  model.zero_grad();
  minimised.backward();
  if (sam_rho > 0) TakeGradientsUphill(model.parameters(), sam_rho, minimised_now);
  on_gradients();
  torch::nn::utils::clip_grad_norm_(model.parameters(), kClipNorm);
  return before;
}

// Trains a copy of the model as Step trains the model in its decay, on separate batches.
class ReplicaTrainer {
 public:
  ReplicaTrainer(std::vector<uint8_t> text, SequenceShape shape, const CharGptFlags& flags)
      : text_(std::move(text)), shape_(shape), flags_(flags) {}

  void Step(CharModel& replica, const CooldownStep& step) {
    if (step.index == 0) optimizer_.emplace(replica, flags_.muon, flags_.weight_decay);
    std::mt19937_64 generator(static_cast<uint64_t>(step.batch));
    const auto starts = DrawStarts(text_, shape_, flags_.batch, generator);
    const Batch batch = MakeBatches(text_, shape_, starts, flags_.batch).front();
    const int64_t decay_start = flags_.schedule.steps - flags_.schedule.decay_steps;
    TakeGradients(replica, batch[0], batch[1], flags_.SamRho(decay_start));
    optimizer_->Step(step.learning_rate);
    if (step.index == step.steps - 1) optimizer_.reset();
  }

 private:
  const std::vector<uint8_t> text_;
  const SequenceShape shape_;
  const CharGptFlags flags_;
  std::optional<Optimizer> optimizer_;
};

}  // namespace

CharTraining::CharTraining(const CharGptFlags& flags)
    : flags_(flags),
      text_(OrUsageError(LoadText(flags.trainer.text))),
      config_{.vocabulary = text_.vocabulary,
              .width = flags.width,
              .layers = flags.layers,
              .heads = flags.heads,
              .experts = flags.experts,
              .length = flags.length},
      model_(MakeSeededModel(flags, config_)),
      shape_{model_->inputs(), flags.length},
      probe_(MakeProbe(text_, shape_, flags)),
      optimizer_(*model_, flags.muon, flags.weight_decay),
      generator_(flags.trainer.seed),
      x_(at::empty({flags.batch, shape_.inputs}, at::kLong)),
      y_(at::empty({flags.batch, shape_.length}, at::kLong)) {}

at::Tensor CharTraining::Step(double learning_rate, double sam_rho,
                              absl::FunctionRef<void()> on_gradients) {
  const at::Tensor loss = Gradients(sam_rho, on_gradients);
  optimizer_.Step(learning_rate);
  return loss;
}

at::Tensor CharTraining::Gradients(double sam_rho, absl::FunctionRef<void()> on_gradients) {
  FillSequences(text_.training, shape_,
                DrawStarts(text_.training, shape_, flags_.batch, generator_), x_, y_);
  return TakeGradients(*model_, x_, y_, sam_rho, on_gradients);
}

std::unique_ptr<Subject> CharTraining::MakeSubject(
    std::function<std::vector<NamedTensor>()> parts,
    std::function<std::optional<OptimizerView>()> optimizer) const {
  if (optimizer == nullptr) {
    optimizer = [muon = flags_.muon, own = &optimizer_, model = model_] {
      // A monitor knows Muon by its name alone.
      return muon ? OptimizerView{.kind = OptimizerKind::kMuon} : ViewOf(own->adamw(), *model);
    };
  }
  std::mt19937_64 generator(flags_.trainer.seed ^ kCalibrationStream);
  const auto starts = DrawStarts(text_.training, shape_, flags_.calibration_sequences, generator);
  auto trainer = std::make_shared<ReplicaTrainer>(text_.training, shape_, flags_);
  return MakeModuleSubject(
      model_,
      {.replica = [mlp = flags_.mlp, config = config_] { return MakeModel(mlp, config); },
       .losses = [](std::shared_ptr<CharModel>& replica, const Batch& batch) -> LossValues {
         CharModel::Answers answers = replica->TokenAnswers(batch[0], batch[1]);
         LossValues losses(std::move(answers.losses));
         losses.correct = std::move(answers.correct);
         return losses;
       },
       .probe = probe_,
       .calibration = MakeBatches(text_.training, shape_, starts, kProbeBatch),
       .optimizer = std::move(optimizer),
       .parts = std::move(parts),
       .train_step = [trainer](std::shared_ptr<CharModel>& replica,
                               const CooldownStep& step) { trainer->Step(*replica, step); }});
}

absl::Status CharTraining::SaveState(const std::string& path) const {
  return SaveTrainingState(path, *model_, optimizer_, generator_);
}

absl::Status CharTraining::LoadState(const std::string& path) {
  return LoadTrainingState(path, *model_, optimizer_, generator_);
}

absl::Status CharTraining::SaveWeights(const std::string& path) const {
  return SaveModelWeights(path, *model_);
}

absl::Status CharTraining::LoadWeights(const std::vector<NamedTensor>& weights) {
  return SetModelWeights(weights, *model_);
}

double CharTraining::ValidationLoss() {
  const at::NoGradGuard no_grad;
  double sum = 0;
  int64_t count = 0;
  for (const Batch& batch : probe_) {
    sum += model_->TokenLosses(batch[0], batch[1]).sum().item<double>();
    count += batch[1].numel();
  }
  return sum / static_cast<double>(count);
}

}  // namespace ptqwatch::examples
