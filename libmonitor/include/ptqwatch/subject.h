#ifndef PTQWATCH_SUBJECT_H_
#define PTQWATCH_SUBJECT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "c10/core/Stream.h"

namespace ptqwatch {

/// The tensors of one batch, in whatever order the losses closure expects. Copied to the monitor's
/// device at Create.
using Batch = std::vector<at::Tensor>;

/// What a losses closure returns: losses in nats per token. Dimension 0 of [sequences] or
/// [sequences, time] is the unit of the standard error. A scalar is one unit with weight 1.
/// Converts from a tensor.
struct LossValues {
  LossValues() = default;
  LossValues(at::Tensor values_in)
      : values(std::move(values_in)) {}  // NOLINT(google-explicit-constructor)
  LossValues(at::Tensor values_in, at::Tensor weights_in)
      : values(std::move(values_in)), weights(std::move(weights_in)) {}
  at::Tensor values;
  /// Same shape; 0 masks a token out. Undefined: all ones. The loss of a masked token may be
  /// anything, NaN too, but must have a finite derivative where curvature is measured: 0 times an
  /// infinite one is NaN. (Replace the token's target or logits, not only its loss.)
  at::Tensor weights;
  /// Optional, for HessianMode::kGaussNewton alone: what `values` were computed from and the
  /// model's output, of any shape, in the same graph.
  at::Tensor logits;
};

/// A parameter or buffer under the name its model gives it.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  bool is_parameter = true;
};

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

/// The model under test. Made by MakeModuleSubject (module_subject.h); implement it only for models
/// of another kind. Used by one thread at a time, except LiveTensors and Optimizer, which only the
/// trainer's thread calls.
class Subject {
 public:
  virtual ~Subject() = default;
  /// Parameters and buffers of the live model, tied ones under every name they have. Called at each
  /// snapshot; only reads.
  virtual std::vector<NamedTensor> LiveTensors() const = 0;
  /// The CUDA stream on which the live tensors are updated; OnStep queues its copy of them there.
  /// Nothing: the stream that is current when OnStep is called. Asked once, by Create.
  virtual std::optional<c10::Stream> UpdateStream() const;
  /// What the optimizer does to the live parameters, where it is known; its tensors are those it
  /// works with. Called by Create, which has to know the kind then, and at each snapshot; only
  /// reads. May throw.
  virtual std::optional<OptimizerView> Optimizer() const;
  /// Makes the replica: the same names and shapes, own memory, evaluation mode. Called once.
  virtual absl::Status BuildReplica() = 0;
  /// Its tensors; the same handles every time.
  virtual std::vector<NamedTensor> ReplicaTensors() const = 0;
  /// Evaluates the replica. May throw.
  virtual LossValues ReplicaLosses(const Batch& batch) = 0;

  /// Held-out data on which losses are compared.
  virtual const std::vector<Batch>& probe() const = 0;
  /// Data whose activations GPTQ is calibrated with.
  virtual const std::vector<Batch>& calibration() const = 0;
  /// Data on which curvature is measured. Empty: the first 64 sequences of the probe batches.
  virtual const std::vector<Batch>& curvature() const;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_SUBJECT_H_
