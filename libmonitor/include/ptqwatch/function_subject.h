#ifndef PTQWATCH_FUNCTION_SUBJECT_H_
#define PTQWATCH_FUNCTION_SUBJECT_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Stream.h"
#include "ptqwatch/config.h"
#include "ptqwatch/subject.h"

namespace ptqwatch {

/// Tensors by their names in FunctionSubjectOptions::live.
class PTQWATCH_EXPORT TensorMap : public std::map<std::string, at::Tensor, std::less<>> {
 public:
  using map::map;
  /// Throws std::out_of_range, with the name and the most similar one, where there is none.
  const at::Tensor& at(std::string_view name) const;
};

/// How to test a model that is not a torch::nn::Module.
struct FunctionSubjectOptions {
  /// Required. The live model's parameters (floating-point) and buffers: tensors that the trainer
  /// updates in place, or its own memory wrapped by at::from_blob (ATen/ops/from_blob.h). Each must
  /// be dense and keep its address, shape, strides and dtype. Raw memory must stay valid until
  /// Monitor::Stop has returned. Two entries either share the whole of their memory (tied weights,
  /// each under its own name) or do not overlap.
  std::vector<NamedTensor> live = {};
  /// Required. Per-token, per-sequence or mean losses of a batch, in nats, computed with ATen
  /// operations from the replica's tensors. These are passed under their names in `live`, in the
  /// same map every time.
  ///
  /// The function must not write to the tensors, must not draw random numbers, but for a
  /// generator of its own, and must own what it captures. It runs on the monitor thread while
  /// training goes on, with and without gradients, and still runs after a Stop that missed its
  /// deadline.
  ///
  /// A weight is quantized if it is a factor of a product with activations: at::linear, matmul, mm,
  /// mv, addmm, bmm, baddbmm and functions built on them (einsum, tensordot), on either side and
  /// transposed or not; at::conv1d and at::conv2d with one group. A matrix that is one run of a
  /// contiguous tensor's elements, such as `select(0, l)` of weights that are stacked as
  /// [layers, m, d], is a layer of its own, "NAME[l]".
  /// The factor may be a copy made in the same call by `to`, `contiguous` or `clone`. Autocast may
  /// be on. Monitor::Describe lists the weights that were not found, with the reasons.
  std::function<LossValues(const TensorMap&, const Batch&)> losses = nullptr;
  /// Required. Held-out data on which losses are compared.
  Batches probe = {};
  /// Empty: the probe batches.
  Batches calibration = {};
  /// Empty: the first 64 sequences of the probe batches, or as many as have 1000 losses.
  Batches curvature = {};
  /// The CUDA stream on which `live` is updated, if that is not the current stream at each OnStep.
  /// Wrap a cudaStream_t by c10::cuda::getStreamFromExternal. It must belong to the tensors' device
  /// and stay valid until Monitor::Stop has returned.
  std::optional<c10::Stream> stream = std::nullopt;
  /// The optimizer's rule and state, with the names in `live`, from which the distance to the edge
  /// of stability is computed; without it that distance is not measured. Its tensors may wrap the
  /// trainer's memory. Called inside Monitor::Create, and inside OnStep and Finish when they take a
  /// snapshot, on the caller's thread.
  std::function<std::optional<OptimizerView>()> optimizer = nullptr;
  /// For shadow cooldowns (MonitorOptions::cooldown): one optimizer step of the replica as the
  /// trainer makes it, on a batch of the trainer's own source, written to these tensors in place.
  /// At `step.index` 0 the optimizer's state begins anew. The rest is as for `losses`, but it may
  /// draw random numbers.
  std::function<void(const TensorMap&, const CooldownStep&)> train_step = nullptr;
};

/// The Subject of named tensors and a function of them, for trainers without torch::nn::Module.
///
/// The live memory is only read. With a monitor it is read inside Create, OnStep and Finish, on the
/// caller's thread; between these calls the trainer may write to it. The replica is a set of new
/// tensors with the same shapes, strides, dtypes and ties; its parameters require gradients. NaN in
/// the live weights is not an error: that snapshot's report names the tensor, and later snapshots
/// are measured as usual.
///
/// Never fails: Monitor::Create and the offline functions report what is missing or does not fit.
PTQWATCH_EXPORT std::unique_ptr<Subject> MakeFunctionSubject(FunctionSubjectOptions options);

}  // namespace ptqwatch

#endif  // PTQWATCH_FUNCTION_SUBJECT_H_
