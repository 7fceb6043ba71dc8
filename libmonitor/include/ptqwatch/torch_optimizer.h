#ifndef PTQWATCH_TORCH_OPTIMIZER_H_
#define PTQWATCH_TORCH_OPTIMIZER_H_

#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "ptqwatch/subject.h"
#include "torch/nn/module.h"
#include "torch/optim/adam.h"
#include "torch/optim/adamw.h"
#include "torch/optim/sgd.h"

namespace ptqwatch {
namespace internal {

/// Calls `read(options, state, view, parameter)` for every parameter of `model` that the optimizer
/// updates. `state` is null before the parameter's first update.
template <typename Options, typename State, typename Read>
void ReadTorchOptimizer(const torch::optim::Optimizer& optimizer, const torch::nn::Module& model,
                        OptimizerView& view, Read&& read) {
  std::unordered_map<const void*, std::string> names;
  for (const auto& item : model.named_parameters()) {
    names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  }
  bool first = true;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    OptimizerView of_group;
    of_group.kind = view.kind;
    for (const at::Tensor& tensor : group.params()) {
      const auto name = names.find(tensor.unsafeGetTensorImpl());
      if (name == names.end()) continue;
      const auto found = optimizer.state().find(tensor.unsafeGetTensorImpl());
      OptimizedParameter parameter;
      parameter.name = name->second;
      parameter.learning_rate = options.lr();
      parameter.weight_decay = options.weight_decay();
      read(options,
           found == optimizer.state().end() ? nullptr
                                            : static_cast<const State*>(found->second.get()),
           of_group, parameter);
      of_group.parameters.push_back(std::move(parameter));
    }
    if (of_group.parameters.empty()) continue;
    if (first) {
      view = std::move(of_group);
      first = false;
      continue;
    }
    if (of_group.momentum != view.momentum || of_group.dampening != view.dampening ||
        of_group.nesterov != view.nesterov || of_group.beta1 != view.beta1 ||
        of_group.beta2 != view.beta2 || of_group.epsilon != view.epsilon) {
      view.unavailable =
          "the optimizer's parameter groups differ in more than learning rate and weight decay";
    }
    for (OptimizedParameter& parameter : of_group.parameters) {
      view.parameters.push_back(std::move(parameter));
    }
  }
}

template <typename Options, typename State>
OptimizerView ViewOfAdam(OptimizerKind kind, const torch::optim::Optimizer& optimizer,
                         const torch::nn::Module& model) {
  OptimizerView view;
  view.kind = kind;
  ReadTorchOptimizer<Options, State>(
      optimizer, model, view,
      [](const Options& options, const State* state, OptimizerView& of_group,
         OptimizedParameter& parameter) {
        std::tie(of_group.beta1, of_group.beta2) = options.betas();
        of_group.epsilon = options.eps();
        if (state == nullptr) return;
        parameter.steps = state->step();
        parameter.second_moment = options.amsgrad() ? state->max_exp_avg_sq() : state->exp_avg_sq();
      });
  return view;
}

}  // namespace internal

/// Returns the optimizer's rule and state for the parameters of `model`, for
/// ModuleSubjectOptions::optimizer. Parameters are matched by identity. A parameter without a
/// gradient so far has no second moment. Cost: one pass over the parameters. Copies no tensor and
/// changes nothing.
inline OptimizerView ViewOf(const torch::optim::AdamW& optimizer, const torch::nn::Module& model) {
  return internal::ViewOfAdam<torch::optim::AdamWOptions, torch::optim::AdamWParamState>(
      OptimizerKind::kAdamW, optimizer, model);
}

inline OptimizerView ViewOf(const torch::optim::Adam& optimizer, const torch::nn::Module& model) {
  return internal::ViewOfAdam<torch::optim::AdamOptions, torch::optim::AdamParamState>(
      OptimizerKind::kAdam, optimizer, model);
}

inline OptimizerView ViewOf(const torch::optim::SGD& optimizer, const torch::nn::Module& model) {
  OptimizerView view;
  view.kind = OptimizerKind::kSgd;
  internal::ReadTorchOptimizer<torch::optim::SGDOptions, torch::optim::SGDParamState>(
      optimizer, model, view,
      [](const torch::optim::SGDOptions& options, const torch::optim::SGDParamState*,
         OptimizerView& of_group, OptimizedParameter&) {
        of_group.momentum = options.momentum();
        of_group.dampening = options.dampening();
        of_group.nesterov = options.nesterov();
      });
  return view;
}

}  // namespace ptqwatch

#endif  // PTQWATCH_TORCH_OPTIMIZER_H_
