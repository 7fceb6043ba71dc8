#include "ptqwatch/torch_optimizer.h"

#include <gmock/gmock.h>

#include "torch/nn/modules/linear.h"

namespace ptqwatch {
namespace torch_optimizer_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(3, 4));
    second = register_module("second", torch::nn::Linear(4, 2));
    unused = register_parameter("unused", torch::ones({5}));
  }
  torch::Tensor Loss() { return second(first(torch::ones({2, 3}))).square().sum(); }
  torch::nn::Linear first{nullptr};
  torch::nn::Linear second{nullptr};
  torch::Tensor unused;
};
TORCH_MODULE(Net);

template <typename Optimizer>
void Step(Net& net, Optimizer& optimizer) {
  optimizer.zero_grad();
  net->Loss().backward();
  optimizer.step();
}

TEST(TorchOptimizer, ReadsAdamWByGroupAndName) {
  Net net;
  using Options = torch::optim::AdamWOptions;
  const auto group = [](torch::nn::Linear& layer, double rate, double decay) {
    return torch::optim::OptimizerParamGroup(
        layer->parameters(),
        std::make_unique<Options>(Options(rate).weight_decay(decay).betas({0.8, 0.95}).eps(1e-6)));
  };
  torch::optim::AdamW optimizer({group(net->second, 0.1, 0.2), group(net->first, 0.3, 0)});
  OptimizerView view = ViewOf(optimizer, *net);
  EXPECT_EQ(view.kind, OptimizerKind::kAdamW);
  EXPECT_EQ(view.beta1, 0.8);
  EXPECT_EQ(view.beta2, 0.95);
  EXPECT_EQ(view.epsilon, 1e-6);
  EXPECT_THAT(view.unavailable, IsEmpty());
  ASSERT_EQ(view.parameters.size(), 4u);
  EXPECT_EQ(view.parameters[0].name, "second.weight");
  EXPECT_EQ(view.parameters[0].learning_rate, 0.1);
  EXPECT_EQ(view.parameters[0].weight_decay, 0.2);
  EXPECT_EQ(view.parameters[3].name, "first.bias");
  EXPECT_EQ(view.parameters[3].learning_rate, 0.3);
  EXPECT_EQ(view.parameters[3].weight_decay, 0);
  for (const OptimizedParameter& parameter : view.parameters) {
    EXPECT_FALSE(parameter.second_moment.defined());
    EXPECT_EQ(parameter.steps, 0);
  }
  Step(net, optimizer);
  Step(net, optimizer);
  view = ViewOf(optimizer, *net);
  const auto& state = static_cast<const torch::optim::AdamWParamState&>(
      *optimizer.state().at(net->second->weight.unsafeGetTensorImpl()));
  EXPECT_EQ(view.parameters[0].steps, 2);
  EXPECT_TRUE(view.parameters[0].second_moment.is_same(state.exp_avg_sq()));
}

TEST(TorchOptimizer, ReadsThePartsOfAShardedModel) {
  const std::vector<NamedTensor> parts = {
      {"w", torch::ones({2, 3}).requires_grad_(), true, {4, 3}, {2, 0}},
      {"empty", torch::ones({0, 3}).requires_grad_(), true, {1, 3}, {1, 0}}};
  torch::optim::AdamW optimizer({parts[0].tensor, parts[1].tensor}, 0.1);
  parts[0].tensor.sum().backward();
  optimizer.step();
  const OptimizerView view = ViewOf(optimizer, parts);
  ASSERT_EQ(view.parameters.size(), 2u);
  EXPECT_EQ(view.parameters[0].name, "w");
  EXPECT_EQ(view.parameters[0].second_moment.sizes(), parts[0].tensor.sizes());
  EXPECT_EQ(view.parameters[1].name, "empty");
}

TEST(TorchOptimizer, ReadsAdamWithItsMaximumAndLeavesOutOthersParameters) {
  Net net;
  Net other;
  std::vector<at::Tensor> parameters = net->parameters();
  parameters.push_back(other->unused);
  torch::optim::Adam optimizer(parameters, torch::optim::AdamOptions(0.1).amsgrad(true));
  Step(net, optimizer);
  const OptimizerView view = ViewOf(optimizer, *net);
  EXPECT_EQ(view.kind, OptimizerKind::kAdam);
  ASSERT_EQ(view.parameters.size(), 5u);
  const auto& state = static_cast<const torch::optim::AdamParamState&>(
      *optimizer.state().at(net->first->weight.unsafeGetTensorImpl()));
  for (const OptimizedParameter& parameter : view.parameters) {
    if (parameter.name == "first.weight") {
      EXPECT_TRUE(parameter.second_moment.is_same(state.max_exp_avg_sq()));
    }
    // Has had no gradient.
    if (parameter.name == "unused") {
      EXPECT_FALSE(parameter.second_moment.defined());
    }
  }
}

TEST(TorchOptimizer, ReadsSgd) {
  Net net;
  torch::optim::SGD optimizer(
      net->parameters(),
      torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01).nesterov(true));
  const OptimizerView view = ViewOf(optimizer, *net);
  EXPECT_EQ(view.kind, OptimizerKind::kSgd);
  EXPECT_EQ(view.momentum, 0.9);
  EXPECT_EQ(view.dampening, 0);
  EXPECT_TRUE(view.nesterov);
  ASSERT_EQ(view.parameters.size(), 5u);
  EXPECT_EQ(view.parameters[0].weight_decay, 0.01);
}

TEST(TorchOptimizer, SaysIfGroupsDifferInMoreThanTheView) {
  Net net;
  using Options = torch::optim::AdamOptions;
  const auto group = [](torch::nn::Linear& layer, double beta1) {
    return torch::optim::OptimizerParamGroup(
        layer->parameters(), std::make_unique<Options>(Options(0.1).betas({beta1, 0.99})));
  };
  torch::optim::Adam optimizer({group(net->first, 0.9), group(net->second, 0.8)});
  const OptimizerView view = ViewOf(optimizer, *net);
  EXPECT_THAT(view.unavailable, HasSubstr("groups differ"));
  EXPECT_EQ(view.parameters.size(), 4u);
}

}  // namespace torch_optimizer_test
}  // namespace ptqwatch
