#include "support/tiny_trainer.h"

#include <torch/torch.h>

#include "ptqwatch/module_subject.h"
#include "ptqwatch/torch_optimizer.h"

namespace ptqwatch::testing {

constexpr int64_t kVocabulary = 12;
constexpr int64_t kLength = 10;
constexpr int64_t kBatch = 8;

struct TinyModelImpl : torch::nn::Module {
  TinyModelImpl(int64_t width, bool tied) {
    embedding = register_module("embedding", torch::nn::Embedding(kVocabulary, width));
    for (int64_t i = 0; i < 3; ++i) {
      blocks->push_back(torch::nn::Linear(width, width));
    }
    register_module("blocks", blocks);
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    // Tied: one tensor under two names.
    head =
        register_parameter("head", tied ? embedding->weight : torch::randn({kVocabulary, width}));
    head_bias = register_parameter("head_bias", torch::zeros({kVocabulary}));
    dropout = register_module("dropout", torch::nn::Dropout(0.1));
    calls = register_buffer("calls", torch::zeros({1}));
  }

  torch::Tensor forward(const torch::Tensor& tokens) {
    if (is_training()) calls.add_(1);
    torch::Tensor x = embedding(tokens);
    for (const auto& block : *blocks) {
      x = x + dropout(torch::relu(block->as<torch::nn::Linear>()->forward(norm(x))));
    }
    return torch::linear(x, head, head_bias);
  }

  torch::Tensor Losses(const torch::Tensor& tokens, const torch::Tensor& targets) {
    const torch::Tensor logits = forward(tokens);
    return torch::nn::functional::cross_entropy(
               logits.view({-1, kVocabulary}), targets.reshape({-1}),
               torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone))
        .view(targets.sizes());
  }

  torch::nn::Embedding embedding{nullptr};
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm{nullptr};
  torch::Tensor head;
  torch::Tensor head_bias;
  torch::nn::Dropout dropout{nullptr};
  torch::Tensor calls;
};
TORCH_MODULE(TinyModel);

namespace {

// Structured tokens: each follows from the last two, with some noise.
torch::Tensor MakeText(int64_t count, at::Generator generator) {
  torch::Tensor text = torch::randint(kVocabulary, {count}, generator, torch::kLong);
  auto* token = text.data_ptr<int64_t>();
  for (int64_t i = 2; i < count; ++i) {
    if (token[i] % 4 != 0) token[i] = (token[i - 1] * 3 + token[i - 2]) % kVocabulary;
  }
  return text;
}

std::vector<Batch> MakeBatches(uint64_t seed, int64_t count) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::vector<Batch> batches;
  for (int64_t i = 0; i < count; ++i) {
    const torch::Tensor text = MakeText(kBatch * (kLength + 1), generator).view({kBatch, -1});
    batches.push_back({text.slice(1, 0, kLength).contiguous(), text.slice(1, 1).contiguous()});
  }
  return batches;
}

}  // namespace

struct TinyTrainer::State {
  int width = 0;
  TinyModel model{nullptr};
  std::unique_ptr<torch::optim::AdamW> optimizer;
  std::vector<Batch> training;
  size_t next = 0;
  std::function<void(const CooldownStep&)> before_train_step;
};

TinyTrainer::TinyTrainer(uint64_t seed, int width) : state_(std::make_shared<State>()) {
  torch::manual_seed(seed);
  state_->width = width;
  state_->model = TinyModel(width, /*tied=*/true);
  state_->optimizer = std::make_unique<torch::optim::AdamW>(state_->model->parameters(),
                                                            torch::optim::AdamWOptions(1e-2));
  state_->training = MakeBatches(7, 32);
}

TinyTrainer::~TinyTrainer() = default;

double TinyTrainer::Step() {
  State& state = *state_;
  const Batch& batch = state.training[state.next++ % state.training.size()];
  state.optimizer->zero_grad();
  const torch::Tensor loss = state.model->Losses(batch[0], batch[1]).mean();
  loss.backward();
  state.optimizer->step();
  return loss.item<double>();
}

std::vector<at::Tensor> TinyTrainer::CloneTensors() const {
  torch::NoGradGuard no_grad;
  std::vector<at::Tensor> clones;
  for (const auto& item : state_->model->named_parameters()) clones.push_back(item.value().clone());
  for (const auto& item : state_->model->named_buffers()) clones.push_back(item.value().clone());
  return clones;
}

std::string TinyTrainer::Bytes() const {
  std::string bytes;
  for (const at::Tensor& tensor : CloneTensors()) {
    bytes.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  }
  return bytes;
}

void TinyTrainer::OnTrainStep(std::function<void(const CooldownStep&)> before) {
  state_->before_train_step = std::move(before);
}

void TinyTrainer::Poison() {
  torch::NoGradGuard no_grad;
  state_->model->blocks[1]->as<torch::nn::Linear>()->weight[2][3] = NAN;
}

void TinyTrainer::ReplaceParameter() {
  torch::NoGradGuard no_grad;
  state_->model->head_bias.set_data(torch::zeros({kVocabulary + 1}));
}

OptimizerView TinyTrainer::Optimizer() const { return ViewOf(*state_->optimizer, *state_->model); }

std::unique_ptr<Subject> TinyTrainer::MakeSubject(Fault fault,
                                                  std::function<void()> before_losses) const {
  ModuleSubjectOptions<TinyModel> options;
  const TinyModel live = state_->model;
  const int width = state_->width;
  options.replica = [live, width, fault] {
    if (fault == Fault::kReplicaThrows) throw std::runtime_error("no such checkpoint");
    if (fault == Fault::kReplicaIsLive) return live;
    if (fault == Fault::kReplicaEmpty) return TinyModel(nullptr);
    return TinyModel(fault == Fault::kReplicaOtherShape ? width + 4 : width,
                     fault != Fault::kReplicaUntied);
  };
  auto calls = std::make_shared<std::atomic<int>>(0);
  options.losses = [live, fault, before_losses, calls](TinyModel& model, const Batch& batch) {
    if (before_losses) before_losses();
    TinyModel used = model;
    if (fault == Fault::kLossesThrow) throw std::runtime_error("index out of range");
    if (fault == Fault::kLossesUseLiveModel) used = live;
    torch::Tensor values = used->Losses(batch[0], batch[1]);
    if (fault == Fault::kLossesDrawRandom) values = values + 0 * torch::rand_like(values);
    if (fault == Fault::kLossesWrongShape) values = values.unsqueeze(-1).expand({-1, -1, 2});
    if (fault == Fault::kLossesNotDeterministic) values = values + (*calls)++;
    if (fault == Fault::kLossesTrainAPart) model->norm->train();
    if (fault == Fault::kLossesSum) values = values.sum();
    if (fault == Fault::kLossesNotFinite) values = values / 0 * 0;
    if (fault == Fault::kLossesDetached) values = values.detach();
    if (fault == Fault::kLossesMissTensor) values = values * batch[2];
    return LossValues(values);
  };
  if (fault == Fault::kNoLosses) options.losses = nullptr;
  if (fault != Fault::kNoProbe) options.probe = MakeBatches(8, 6);
  if (fault == Fault::kBadLabel) options.probe[4][1][3][2] = kVocabulary;
  options.calibration = MakeBatches(9, 4);
  options.optimizer = [state = state_] { return ViewOf(*state->optimizer, *state->model); };
  if (fault == Fault::kNoTrainStep) return MakeModuleSubject(state_->model, std::move(options));
  options.train_step = [before = state_->before_train_step, training = state_->training,
                        optimizer = std::shared_ptr<torch::optim::AdamW>()](
                           TinyModel& model, const CooldownStep& step) mutable {
    if (before) before(step);
    if (step.index == 0) {
      optimizer = std::make_shared<torch::optim::AdamW>(model->parameters());
    }
    for (auto& group : optimizer->param_groups()) group.options().set_lr(step.learning_rate);
    const Batch& batch = training[static_cast<size_t>(step.batch) % training.size()];
    optimizer->zero_grad();
    model->Losses(batch[0], batch[1]).mean().backward();
    optimizer->step();
  };
  return MakeModuleSubject(state_->model, std::move(options));
}

std::unique_ptr<Subject> TinyTrainer::MakeShardedSubject() const {
  ModuleSubjectOptions<TinyModel> options;
  options.replica = [width = state_->width] { return TinyModel(width, true); };
  options.losses = [](TinyModel& model, const Batch& batch) {
    return LossValues(model->Losses(batch[0], batch[1]));
  };
  options.probe = MakeBatches(8, 6);
  options.calibration = MakeBatches(9, 4);
  options.parts = [model = state_->model] {
    std::vector<NamedTensor> parts;
    const auto add = [&](const std::string& name, const at::Tensor& whole, bool is_parameter) {
      parts.push_back({name, whole, is_parameter, whole.sizes().vec(),
                       std::vector<int64_t>(static_cast<size_t>(whole.dim()), 0)});
    };
    for (const auto& item : model->named_parameters()) add(item.key(), item.value(), true);
    for (const auto& item : model->named_buffers()) add(item.key(), item.value(), false);
    return parts;
  };
  options.optimizer = [state = state_, parts = options.parts] {
    return ViewOf(*state->optimizer, parts());
  };
  return MakeModuleSubject(state_->model, std::move(options));
}

}  // namespace ptqwatch::testing
