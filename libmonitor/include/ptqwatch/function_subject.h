#ifndef PTQWATCH_FUNCTION_SUBJECT_H_
#define PTQWATCH_FUNCTION_SUBJECT_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Stream.h"
#include "ptqwatch/subject.h"

namespace ptqwatch {

/// Tensors by the names that FunctionSubjectOptions::live gives them.
using TensorMap = std::map<std::string, at::Tensor, std::less<>>;

/// How a model that is no torch::nn::Module is tested.
struct FunctionSubjectOptions {
  /// Parameters (floating-point) and buffers of the live model. The trainer's own memory, wrapped
  /// by at::from_blob (ATen/ops/from_blob.h), or tensors that it updates in place. Each keeps its
  /// address, shape, strides and dtype, and raw memory stays valid, until Monitor::Stop has
  /// returned. Dense; two entries are the same memory as a whole (tied weights, under a name each)
  /// or do not overlap.
  std::vector<NamedTensor> live = {};
  /// Per-token, per-sequence or mean losses of a batch, in nats, computed with ATen operations from
  /// the tensors it is given: the replica's, under the names in `live`, the same map every time.
  /// Writes to none of them, draws no random numbers, and owns what it captures: it runs on the
  /// monitor thread beside the training, with gradients or without, and after Stop where that
  /// missed its deadline. A weight is found for quantization where it as a whole is a factor of a
  /// product with activations: at::linear, matmul, mm, mv, addmm, bmm, baddbmm and what ends in
  /// them (einsum, tensordot), on either side, transposed or not; at::conv1d and at::conv2d in one
  /// group. It may be a copy made in the same call by `to`, `contiguous` or `clone`, and autocast
  /// may be on. Monitor::Describe names what was not found, and why.
  std::function<LossValues(const TensorMap&, const Batch&)> losses = nullptr;
  std::vector<Batch> probe = {};
  /// Empty: the probe batches.
  std::vector<Batch> calibration = {};
  /// Empty: the first 64 sequences of the probe batches.
  std::vector<Batch> curvature = {};
  /// The CUDA stream that the updates of `live` run on, where it is not the one that is current at
  /// each OnStep. A cudaStream_t is wrapped by c10::cuda::getStreamFromExternal. Must be of the
  /// tensors' device, and valid until Stop has returned.
  std::optional<c10::Stream> stream = std::nullopt;
  /// What the optimizer does, for the distance to the edge of stability; names are those in `live`.
  /// Called inside Create, OnStep and Finish where a snapshot is taken, on the thread that calls
  /// them. Tensors wrap the trainer's own memory. Without it that distance is not measured.
  std::function<std::optional<OptimizerView>()> optimizer = nullptr;
};

/// The Subject of named tensors and a function of them, for trainers without torch::nn::Module. The
/// live memory is only ever read: by Create, and inside OnStep and Finish on the thread that calls
/// them, so that between two of those calls the trainer may write to it as it likes. The replica is
/// a set of tensors of the monitor's own with the same shapes, strides, dtypes and ties, its
/// parameters with requires_grad. NaN in the live weights is no error: the report of that snapshot
/// says which tensor has it, and the next one is measured as ever.
/// Never fails: what is missing or does not fit is reported by Monitor::Create.
std::unique_ptr<Subject> MakeFunctionSubject(FunctionSubjectOptions options);

}  // namespace ptqwatch

#endif  // PTQWATCH_FUNCTION_SUBJECT_H_
