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
  /// Throws std::out_of_range, naming `name` and the most similar known name, if it is not in the
  /// map.
  const at::Tensor& at(std::string_view name) const;
};

/// Describes a model that is not a torch::nn::Module.
struct FunctionSubjectOptions {
  /// Required. The live model's parameters (floating-point) and buffers: tensors that the trainer
  /// updates in place, or its own memory wrapped by at::from_blob (ATen/ops/from_blob.h). Each must
  /// be dense and keep its address, shape, strides and dtype. Raw memory must stay valid until
  /// Monitor::Stop has returned. Two entries either share all of their memory (tied weights, each
  /// under its own name) or do not overlap. If training is sharded, the parts that this rank has,
  /// `{.name = "w", .tensor = shard, .global_shape = {n, d}, .offset = {first_row, 0}}`; the
  /// replica has the whole tensors.
  std::vector<NamedTensor> live = {};
  /// Required. Per-token, per-sequence or mean losses of a batch, in nats, computed with ATen
  /// operations from the replica's tensors. Receives these under their names in `live`, in the same
  /// map every time.
  ///
  /// The function must not write to the tensors, must draw random numbers only from a generator of
  /// its own, and must own what it captures. It runs on the monitor thread during training, with
  /// and without gradients, and may still run after a Stop that missed its deadline.
  ///
  /// A weight is quantized if it is a factor of a product with activations: at::linear, matmul, mm,
  /// mv, addmm, bmm, baddbmm and functions built on them (einsum, tensordot), on either side and
  /// transposed or not; at::conv1d and at::conv2d with one group. If a matrix is one run of a
  /// contiguous tensor's elements, such as `select(0, l)` of weights stacked as [layers, m, d], it
  /// is a layer of its own, "NAME[l]". The factor may be a copy made in the same call by `to`,
  /// `contiguous` or `clone`. Autocast may be on. Monitor::Describe lists the weights that were not
  /// found, with the reasons.
  std::function<LossValues(const TensorMap&, const Batch&)> losses = nullptr;
  /// Required. Held-out data for comparing losses.
  Batches probe = {};
  /// Empty: the probe batches.
  Batches calibration = {};
  /// Empty: the first 64 sequences of the probe batches, or more, until they have 1000 losses.
  Batches curvature = {};
  /// The CUDA stream that updates `live`, if it is not the current stream at each OnStep. Wrap a
  /// cudaStream_t by c10::cuda::getStreamFromExternal. It must belong to the tensors' device and
  /// stay valid until Monitor::Stop has returned.
  std::optional<c10::Stream> stream = std::nullopt;
  /// The optimizer's rule and state, with the names in `live`; needed to measure the distance to
  /// the edge of stability. Its tensors may wrap the trainer's memory. Called on the caller's
  /// thread, inside Monitor::Create and inside each OnStep and Finish that takes a snapshot.
  std::function<std::optional<OptimizerView>()> optimizer = nullptr;
  /// For shadow cooldowns (MonitorOptions::cooldown): makes one optimizer step of the replica, as
  /// the trainer would, on a batch from the trainer's own source, and updates these tensors in
  /// place. At `step.index` 0 the optimizer's state starts afresh. The rules of `losses` apply, but
  /// this function may draw random numbers.
  std::function<void(const TensorMap&, const CooldownStep&)> train_step = nullptr;
};

/// Makes a Subject from named tensors and a function, for trainers without torch::nn::Module.
///
/// The live memory is only read. A monitor reads it inside Create, OnStep and Finish, on the
/// caller's thread; the trainer may write to it between these calls. The replica consists of new
/// tensors with the same shapes, strides, dtypes and ties; its parameters require gradients. NaN in
/// the live weights is not an error: the report of that snapshot names the tensor, and later
/// snapshots are measured as usual.
///
/// Never fails: Monitor::Create and the offline functions report missing and unsuitable options.
PTQWATCH_EXPORT std::unique_ptr<Subject> MakeFunctionSubject(FunctionSubjectOptions options);

}  // namespace ptqwatch

#endif  // PTQWATCH_FUNCTION_SUBJECT_H_
