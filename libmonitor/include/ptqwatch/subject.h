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
#include "ptqwatch/config.h"
#include "ptqwatch/report.h"

namespace ptqwatch {

namespace internal {
class ModelSession;
}  // namespace internal

/// The tensors of one batch, in the order that the losses closure expects. They are copied to the
/// replica's device when the subject is opened.
class PTQWATCH_EXPORT Batch : public std::vector<at::Tensor> {
 public:
  using vector::vector;
  Batch() = default;
  Batch(std::vector<at::Tensor> tensors)  // NOLINT(google-explicit-constructor)
      : vector(std::move(tensors)) {}
  /// Throws std::out_of_range, with the number of tensors, if `index` is too large.
  const at::Tensor& operator[](size_t index) const;
  at::Tensor& operator[](size_t index);
};

/// Several batches; converts from vectors of tensors.
class Batches : public std::vector<Batch> {
 public:
  using vector::vector;
  Batches() = default;
  Batches(std::vector<Batch> batches)  // NOLINT(google-explicit-constructor)
      : vector(std::move(batches)) {}
  Batches(
      const std::vector<std::vector<at::Tensor>>& batches)  // NOLINT(google-explicit-constructor)
      : vector(batches.begin(), batches.end()) {}
};

/// The result of a losses closure: losses in nats per token, of shape [sequences, time],
/// [sequences] or []. Dimension 0 is the unit of the standard error; a scalar is one unit of weight
/// 1. Converts from a tensor.
struct LossValues {
  LossValues() = default;
  LossValues(at::Tensor values_in)
      : values(std::move(values_in)) {}  // NOLINT(google-explicit-constructor)
  LossValues(at::Tensor values_in, at::Tensor weights_in)
      : values(std::move(values_in)), weights(std::move(weights_in)) {}
  at::Tensor values;
  /// Same shape as `values`, not negative; 0 masks a token. Must depend on the batch alone, not on
  /// the model's parameters. Undefined: all ones. A masked loss may have any value, even NaN. If
  /// curvature is measured, its derivative must be finite, because 0 times infinity is NaN: replace
  /// the token's target or logits, not only its loss.
  at::Tensor weights;
  /// Only for HessianMode::kGaussNewton: the model output that `values` were computed from, of any
  /// shape and in the same graph.
  at::Tensor logits;
  /// Optional: 1 for each example that the model gets right and 0 otherwise (bool or numeric), of
  /// any shape with the same dimension 0 as `values`; NaN leaves an example out. Reports then
  /// include the accuracy with and without quantization.
  at::Tensor correct;
};

/// One optimizer step of a simulated learning-rate decay (CooldownOptions).
struct CooldownStep {
  int64_t index = 0;  ///< 0, 1, ... in this decay. At 0 the optimizer's state starts afresh.
  int64_t steps = 0;  ///< of this decay; the last one has index steps - 1
  double learning_rate = 0;
  /// Seed for the step's batch: equal for the same step of the same snapshot, different for any
  /// other step. Not negative.
  int64_t batch = 0;
};

/// A parameter or buffer under the name that its model gives it.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  bool is_parameter = true;
  /// If training is sharded and this process has a part of the tensor: the shape of the whole.
  /// `tensor` may be empty, and it may be the whole. Only monitors with a process of their own
  /// (MonitorOptions::process), one on each rank, measure such a model; docs/sharded.md.
  std::vector<int64_t> global_shape = {};
  /// Where the part begins in the whole. With an index for each dimension, the part is a box of the
  /// whole. With a single number, if the whole has more dimensions, the part is a vector: a run of
  /// the elements of the flattened whole.
  std::vector<int64_t> offset = {};
};

/// One parameter that an optimizer updates.
struct OptimizedParameter {
  std::string name;  ///< any name under which the subject lists it
  double learning_rate = 0;
  double weight_decay = 0;
  int64_t steps = 0;  ///< its updates so far, for Adam's bias correction
  /// Adam: the running mean of squared gradients before bias correction, or with AMSGrad the
  /// maximum that replaces it. The parameter's shape and device. Undefined before the first update.
  at::Tensor second_moment = {};
};

/// An optimizer's rule and state between two steps. The library only reads it.
struct OptimizerView {
  OptimizerKind kind = OptimizerKind::kSgd;
  double momentum = 0;  ///< SGD
  double dampening = 0;
  bool nesterov = false;
  double beta1 = 0.9;  ///< Adam
  double beta2 = 0.999;
  double epsilon = 1e-8;
  /// A parameter of the model that is missing here counts as not trained.
  std::vector<OptimizedParameter> parameters = {};
  /// If not empty, the reason why these fields cannot describe the rule. Reports give it as the
  /// reason for missing results.
  std::string unavailable = {};
};

/// The model under test: names the live tensors, builds the replica and evaluates losses on it.
/// Made by MakeModuleSubject (module_subject.h) or MakeFunctionSubject (function_subject.h);
/// implement it for other kinds of models.
///
/// A subject serves one monitor or one offline call. Opening it again fails with
/// FailedPrecondition.
///
/// Not thread-safe. LiveTensors and Optimizer are called only on the trainer's thread. All other
/// functions are called by one thread at a time.
class PTQWATCH_EXPORT Subject {
 public:
  virtual ~Subject() = default;
  /// Parameters and buffers of the live model; tied tensors under each of their names. Called at
  /// every snapshot. Must not change anything.
  virtual std::vector<NamedTensor> LiveTensors() const = 0;
  /// The CUDA stream that updates the live tensors; snapshots are copied on it. Empty: the stream
  /// that is current at each OnStep. Called once, by Monitor::Create.
  virtual std::optional<c10::Stream> UpdateStream() const;
  /// The optimizer of the live parameters, if known. The view's tensors are the optimizer's own.
  /// Called by Monitor::Create, which needs its kind, and at every snapshot. Must not change
  /// anything. May throw.
  virtual std::optional<OptimizerView> Optimizer() const;
  /// Makes the replica: the same names and shapes, memory of its own, in evaluation mode, on any
  /// device. Does nothing if the replica exists already.
  virtual absl::Status BuildReplica() = 0;
  /// The replica's tensors; returns the same handles every time.
  virtual std::vector<NamedTensor> ReplicaTensors() const = 0;
  /// Evaluates the replica without changing it. May throw.
  virtual LossValues ReplicaLosses(const Batch& batch) = 0;
  /// Describes a part of the replica that is in training mode, for an error message; empty if there
  /// is none or the replica has no such modes. Called after each evaluation.
  virtual std::string ReplicaInTraining() const;
  /// Whether TrainReplica can be called. If not, there are no shadow cooldowns.
  virtual bool CanTrainReplica() const;
  /// Makes one optimizer step of the replica, in place, on a batch from its own source. Called with
  /// gradients enabled. May throw. May draw random numbers, which do not affect training.
  virtual void TrainReplica(const CooldownStep& step);

  /// Held-out data for comparing losses.
  virtual const std::vector<Batch>& probe() const = 0;
  /// Data whose activations calibrate the quantizers.
  virtual const std::vector<Batch>& calibration() const = 0;
  /// Data for measuring curvature. Empty: the first 64 sequences of the probe batches, or more,
  /// until they have 1000 losses.
  virtual const std::vector<Batch>& curvature() const;

 private:
  friend class internal::ModelSession;
  bool opened_ = false;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_SUBJECT_H_
