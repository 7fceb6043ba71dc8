#ifndef PTQWATCH_TORCH_OPTIMIZER_H_
#define PTQWATCH_TORCH_OPTIMIZER_H_

#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ptqwatch/subject.h"
#include "torch/nn/module.h"
#include "torch/optim/adam.h"
#include "torch/optim/adamw.h"
#include "torch/optim/sgd.h"

namespace ptqwatch {
namespace internal {

/// Names of tensors: those of a module's parameters, or of the parts that a rank has of a sharded
/// model.
class NamesOfTensors {
 public:
  NamesOfTensors(const torch::nn::Module& model) {  // NOLINT(google-explicit-constructor)
    for (const auto& item : model.named_parameters()) {
      names_.emplace(item.value().unsafeGetTensorImpl(), item.key());
    }
  }
  NamesOfTensors(const std::vector<NamedTensor>& parts) {  // NOLINT(google-explicit-constructor)
    for (const NamedTensor& part : parts) {
      names_.emplace(part.tensor.unsafeGetTensorImpl(), part.name);
    }
  }
  /// Null if the tensor has none.
  const std::string* Find(const at::Tensor& tensor) const {
    const auto found = names_.find(tensor.unsafeGetTensorImpl());
    return found == names_.end() ? nullptr : &found->second;
  }

 private:
  std::unordered_map<const void*, std::string> names_;
};

/// Calls `read(options, state, view, parameter)` for every tensor with a name that the optimizer
/// updates. `state` is null before the parameter's first update.
template <typename Options, typename State, typename Read>
void ReadTorchOptimizer(const torch::optim::Optimizer& optimizer, const NamesOfTensors& names,
                        OptimizerView& view, Read&& read) {
  bool first = true;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    OptimizerView of_group;
    of_group.kind = view.kind;
    for (const at::Tensor& tensor : group.params()) {
      const std::string* const name = names.Find(tensor);
      if (name == nullptr) continue;
      const auto found = optimizer.state().find(tensor.unsafeGetTensorImpl());
      OptimizedParameter parameter;
      parameter.name = *name;
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
                         const NamesOfTensors& names) {
  OptimizerView view;
  view.kind = kind;
  ReadTorchOptimizer<Options, State>(
      optimizer, names, view,
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

/// Returns the optimizer's rule and state, for ModuleSubjectOptions::optimizer. `names` is the
/// model or, if training is sharded, ModuleSubjectOptions::parts. Parameters are matched by
/// identity. A parameter without a gradient so far has no second moment. Cost: one pass over the
/// parameters. Copies no tensor and changes nothing.
inline OptimizerView ViewOf(const torch::optim::AdamW& optimizer,
                            const internal::NamesOfTensors& names) {
  return internal::ViewOfAdam<torch::optim::AdamWOptions, torch::optim::AdamWParamState>(
      OptimizerKind::kAdamW, optimizer, names);
}

inline OptimizerView ViewOf(const torch::optim::Adam& optimizer,
                            const internal::NamesOfTensors& names) {
  return internal::ViewOfAdam<torch::optim::AdamOptions, torch::optim::AdamParamState>(
      OptimizerKind::kAdam, optimizer, names);
}

inline OptimizerView ViewOf(const torch::optim::SGD& optimizer,
                            const internal::NamesOfTensors& names) {
  OptimizerView view;
  view.kind = OptimizerKind::kSgd;
  internal::ReadTorchOptimizer<torch::optim::SGDOptions, torch::optim::SGDParamState>(
      optimizer, names, view,
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
