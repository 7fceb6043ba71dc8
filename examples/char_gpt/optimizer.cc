#include "optimizer.h"

#include <memory>
#include <utility>
#include <vector>

namespace ptqwatch::examples {

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

}  // namespace ptqwatch::examples
