#ifndef PTQWATCH_OPTIMIZER_VIEW_H_
#define PTQWATCH_OPTIMIZER_VIEW_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"

namespace ptqwatch {

/// Update rules by their form, written with the gradient g, the rate eta and the decay wd.
enum class OptimizerKind {
  /// d = g + wd w; with momentum mu: v = mu v + (1 - dampening) d, and d = v, or d + mu v where
  /// nesterov; w -= eta d.
  kSgd = 0,
  /// Weight decay is part of the gradient: g + wd w goes into both moments (arXiv 1412.6980).
  kAdam = 1,
  /// Weight decay is separate: w = (1 - eta wd) w - eta / (1 - beta1^t) m / (sqrt(v / (1 -
  /// beta2^t)) + epsilon) (arXiv 1711.05101).
  kAdamW = 2,
};
/// "sgd", "adam", "adamw".
std::string_view ToString(OptimizerKind kind);

/// One parameter that an optimizer updates.
struct OptimizedParameter {
  std::string name;  ///< any name that the subject lists it under
  double learning_rate = 0;
  double weight_decay = 0;
  int64_t steps = 0;  ///< updates it has had, for Adam's bias corrections
  /// Adam: the running mean of squared gradients as the optimizer keeps it, before bias correction;
  /// with amsgrad the maximum that takes its place. The parameter's shape and device. Undefined
  /// before the first update.
  at::Tensor second_moment = {};
};

/// An optimizer's rule and state as they are between two steps. Only ever read.
struct OptimizerView {
  OptimizerKind kind = OptimizerKind::kSgd;
  double momentum = 0;  ///< SGD
  double dampening = 0;
  bool nesterov = false;
  double beta1 = 0.9;  ///< Adam
  double beta2 = 0.999;
  double epsilon = 1e-8;
  /// Parameters of the model that are missing here are taken not to be trained.
  std::vector<OptimizedParameter> parameters = {};
  /// Not empty: why the rule cannot be told in these terms. Reports give it as the reason for what
  /// is missing.
  std::string unavailable = {};
};

}  // namespace ptqwatch

#endif  // PTQWATCH_OPTIMIZER_VIEW_H_
