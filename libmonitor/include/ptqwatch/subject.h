#ifndef PTQWATCH_SUBJECT_H_
#define PTQWATCH_SUBJECT_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "c10/core/Stream.h"
#include "ptqwatch/optimizer_view.h"

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
