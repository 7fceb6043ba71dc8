#include "gpt_under_test.h"

#include <random>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "absl/strings/str_format.h"
#include "base/strings.h"
#include "char_model.h"
#include "ptqwatch/module_subject.h"
#include "sequences.h"
#include "snapshot/tensor_table.h"
#include "text.h"
#include "torch/nn/utils/clip_grad.h"
#include "torch/optim/adamw.h"
#include "torch/utils.h"

namespace ptqwatch::benchmarks {
namespace {

using examples::CharModel;
using examples::ModelConfig;
using examples::SequenceShape;
using examples::Text;

constexpr int64_t kTrainingSequences = 8;
constexpr double kClipNorm = 1.0;
constexpr double kWeightDecay = 0.1;

torch::optim::AdamW MakeOptimizer(const torch::nn::Module& model) {
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
      std::vector{group(std::move(matrices), kWeightDecay), group(std::move(vectors), 0.0)},
      options);
}

class Gpt final : public GptUnderTest {
 public:
  Gpt(const GptConfig& config, Text text)
      : config_(config),
        text_(std::move(text)),
        model_(MakeModel()),
        optimizer_(MakeOptimizer(*model_)),
        generator_(config.seed) {
    const SequenceShape shape = Shape();
    batches_ = Batches(examples::MakeBatches(
        text_.validation, shape,
        examples::EvenStarts(text_.validation, shape, config.sequences * config.batches,
                             config.sequences),
        config.sequences));
  }

  absl::Status MakeReplica() {
    subject_ = MakeModuleSubject(model_, {.replica = [this] { return MakeModel(); },
                                          .losses = [](std::shared_ptr<CharModel>& replica,
                                                       const Batch& batch) -> LossValues {
                                            return replica->TokenLosses(batch[0], batch[1]);
                                          },
                                          .probe = batches_});
    absl::StatusOr<internal::TensorTable> table =
        internal::MakeTensorTable(subject_->LiveTensors());
    if (!table.ok()) return table.status();
    names_ = table->names;
    for (size_t i = 0; i < table->entries.size(); ++i) {
      const internal::TensorEntry& entry = table->entries[i];
      const bool in_block = entry.name.starts_with("blocks_") && entry.tensor.dim() == 2;
      if (in_block || config_.all_parameters) scope_.push_back(static_cast<int>(i));
    }
    absl::StatusOr<std::unique_ptr<internal::Replica>> replica =
        internal::Replica::Create(subject_.get(), *table, {&batches_[0]});
    if (!replica.ok()) return replica.status();
    replica_ = *std::move(replica);
    return absl::OkStatus();
  }

  double Train(int64_t steps, const std::function<double(int64_t)>& learning_rate) override {
    const at::AutoGradMode with_graph(true);
    const SequenceShape shape = Shape();
    const at::Tensor x = at::empty({kTrainingSequences, shape.inputs}, at::kLong);
    const at::Tensor y = at::empty({kTrainingSequences, shape.length}, at::kLong);
    const std::vector<at::Tensor> parameters = model_->parameters();
    double last = 0;
    for (int64_t i = 0; i < steps; ++i) {
      for (auto& group : optimizer_.param_groups()) group.options().set_lr(learning_rate(step_));
      FillSequences(text_.training, shape,
                    DrawStarts(text_.training, shape, kTrainingSequences, generator_), x, y);
      const at::Tensor loss = model_->TokenLosses(x, y).mean();
      optimizer_.zero_grad();
      loss.backward();
      torch::nn::utils::clip_grad_norm_(parameters, kClipNorm);
      optimizer_.step();
      last = loss.item<double>();
      ++step_;
    }
    return last;
  }

  Weights Copy() const override {
    Weights copies;
    for (const NamedTensor& live : subject_->LiveTensors()) {
      copies.push_back(live.tensor.detach().clone());
    }
    return copies;
  }

  const std::vector<std::string>& names() const override { return names_; }
  int64_t vocabulary() const override { return text_.vocabulary; }
  const std::vector<Batch>& curvature_batches() const override { return batches_; }

  absl::StatusOr<std::unique_ptr<internal::ReplicaSurface>> SurfaceAt(
      const Weights& weights) override {
    replica_->Load(weights);
    double tokens = 0;
    for (const Batch& batch : batches_) tokens += static_cast<double>(batch[1].numel());
    return internal::ReplicaSurface::Create(replica_.get(), scope_, &batches_, tokens);
  }

 private:
  std::shared_ptr<CharModel> MakeModel() const {
    return examples::MakeGpt(ModelConfig{.vocabulary = text_.vocabulary,
                                         .width = config_.width,
                                         .layers = config_.layers,
                                         .heads = config_.heads,
                                         .length = config_.length});
  }
  SequenceShape Shape() const { return {config_.length, config_.length}; }

  const GptConfig config_;
  const Text text_;
  std::shared_ptr<CharModel> model_;
  torch::optim::AdamW optimizer_;
  std::mt19937_64 generator_;
  int64_t step_ = 0;
  std::vector<Batch> batches_;
  std::vector<std::string> names_;
  std::vector<int> scope_;
  std::unique_ptr<Subject> subject_;
  std::unique_ptr<internal::Replica> replica_;
};

}  // namespace

std::string Describe(const GptConfig& config) {
  return absl::StrFormat("width %d, layers %d, heads %d, length %d, %d batches of %d sequences, %s",
                         config.width, config.layers, config.heads, config.length, config.batches,
                         config.sequences,
                         config.all_parameters ? "all parameters" : "the blocks' matrices");
}

absl::StatusOr<std::unique_ptr<GptUnderTest>> GptUnderTest::Create(const GptConfig& config) {
  if (config.width % config.heads != 0) {
    return absl::InvalidArgumentError(
        internal::StrCat("--heads ", config.heads, " does not divide --width ", config.width));
  }
  absl::StatusOr<Text> text = examples::LoadText(config.text);
  if (!text.ok()) return text.status();
  const int64_t needed = config.sequences * config.batches * (config.length + 1);
  if (std::ssize(text->validation) < needed) {
    return absl::InvalidArgumentError(
        internal::StrCat("--text ", config.text, ": its last tenth has ", text->validation.size(),
                         " characters of the ", needed, " that the curvature batches need"));
  }
  torch::manual_seed(config.seed);
  auto gpt = std::make_unique<Gpt>(config, *std::move(text));
  if (absl::Status status = gpt->MakeReplica(); !status.ok()) return status;
  return gpt;
}

}  // namespace ptqwatch::benchmarks
