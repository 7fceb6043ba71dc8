#include "optimizer.h"

#include <memory>
#include <string>
#include <utility>

#include "torch/nn/modules/linear.h"

namespace ptqwatch::examples {
namespace {

constexpr char kHead[] = "head";

std::vector<at::Tensor> HiddenMatrices(const torch::nn::Module& model) {
  std::vector<at::Tensor> matrices;
  for (const auto& item : model.named_modules()) {
    const auto* linear = item.value()->as<torch::nn::LinearImpl>();
    if (linear != nullptr && item.key() != kHead) matrices.push_back(linear->weight);
  }
  return matrices;
}

std::vector<at::Tensor> Without(const Muon& muon, const torch::nn::Module& model) {
  std::vector<at::Tensor> rest;
  for (const at::Tensor& parameter : model.parameters()) {
    if (!muon.Momentum(parameter).defined()) rest.push_back(parameter);
  }
  return rest;
}

}  // namespace

torch::optim::AdamW MakeAdamW(const std::vector<at::Tensor>& parameters, double weight_decay) {
  std::vector<at::Tensor> matrices;
  std::vector<at::Tensor> vectors;
  for (const at::Tensor& parameter : parameters) {
    (parameter.dim() >= 2 ? matrices : vectors).push_back(parameter);
  }
  const auto options = torch::optim::AdamWOptions().betas({0.9, 0.95});
  const auto group = [&options](std::vector<at::Tensor> members, double decay) {
    return torch::optim::OptimizerParamGroup(
        std::move(members), std::make_unique<torch::optim::AdamWOptions>(
                                torch::optim::AdamWOptions(options).weight_decay(decay)));
  };
  return torch::optim::AdamW(
      std::vector{group(std::move(matrices), weight_decay), group(std::move(vectors), 0.0)},
      options);
}

Optimizer::Optimizer(const torch::nn::Module& model, bool muon, double weight_decay)
    : muon_(muon ? HiddenMatrices(model) : std::vector<at::Tensor>(), weight_decay),
      adamw_(MakeAdamW(Without(muon_, model), weight_decay)) {}

void Optimizer::Step(double learning_rate) {
  for (auto& group : adamw_.param_groups()) group.options().set_lr(learning_rate);
  adamw_.step();
  muon_.Step(learning_rate);
}

}  // namespace ptqwatch::examples
