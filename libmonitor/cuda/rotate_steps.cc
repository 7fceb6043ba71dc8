#include "cuda/rotate_steps.h"

#include <cmath>

#include "base/status_macros.h"
#include "cuda/kernels/factor_kernels.h"
#include "cuda/kernels/panel_kernels.h"
#include "cuda/kernels/rotate_kernel.h"

namespace ptqwatch::internal {
namespace {

template <typename T>
RotateLines<T> RotateKernel(const LayerGroup& group, int layers, int64_t lines) {
  return {.layers = layers,
          .lines = lines,
          .length = group.cols,
          .line_stride = group.cols,
          .block = group.spec.rotation,
          .scale = 1 / std::sqrt(static_cast<double>(group.spec.rotation))};
}

absl::Status RotateWeights(const LayerGroup& group, const PerLayer<const float>& from,
                           const PerLayer<float>& to, Queue& queue) {
  RotateLines<float> rotate = RotateKernel<float>(group, group.layers, group.rows);
  rotate.from = from;
  rotate.to = to;
  return queue.Run(rotate);
}

// The memory of a rotated group, which only Rotate writes.
template <typename T>
PerLayer<T> Writable(const PerLayer<const T>& batch) {
  PerLayer<T> result;
  for (int i = 0; i < kMaxBatch; ++i) result.at[i] = const_cast<T*>(batch.at[i]);
  return result;
}

}  // namespace

absl::StatusOr<LayerGroup> TakeRotated(const LayerGroup& group, Arena& arena) {
  if (group.spec.rotation == 0) return group;
  LayerGroup rotated = group;
  Strided<float> weight;
  Strided<float> dequantized;
  Strided<double> sum;
  PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, group.layers, group.size(), &weight));
  PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, group.layers, group.size(), &dequantized));
  if (group.inputs > 0) {
    PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, group.inputs, group.cols * group.cols, &sum));
    sum.stride = group.InputStride(sum.stride);
  }
  for (int i = 0; i < group.layers; ++i) {
    rotated.weight.at[i] = weight.at(i);
    rotated.dequantized.at[i] = dequantized.at(i);
    if (group.inputs > 0) rotated.sum.at[i] = sum.at(i);
  }
  return rotated;
}

absl::Status Rotate(const LayerGroup& group, const LayerGroup& rotated, Queue& queue) {
  PTQWATCH_RETURN_IF_ERROR(RotateWeights(group, group.weight, Writable(rotated.weight), queue));
  if (!group.attempt.quantize) {
    PTQWATCH_RETURN_IF_ERROR(
        RotateWeights(group, Const(group.dequantized), rotated.dequantized, queue));
  }
  if (group.inputs == 0) return absl::OkStatus();
  RotateLines<double> rotate = RotateKernel<double>(group, group.inputs, group.cols);
  rotate.from = group.sum;
  rotate.to = Writable(rotated.sum);
  PTQWATCH_RETURN_IF_ERROR(queue.Run(rotate));
  rotate.from = rotated.sum;
  rotate.line_stride = 1;
  rotate.stride = group.cols;
  PTQWATCH_RETURN_IF_ERROR(queue.Run(rotate));
  // Removes rounding errors from the symmetry.
  for (int i = 0; i < group.inputs; ++i) {
    PTQWATCH_RETURN_IF_ERROR(queue.Run(MirrorSum{.sum = rotate.to.at[i], .cols = group.cols}));
  }
  return queue.Run(DescribeInputs{.layers = group.layers,
                                  .cols = group.cols,
                                  .damp = group.attempt.damp,
                                  .sum = rotated.sum,
                                  .counts = group.counts,
                                  .count_dead = false,
                                  .diagonal = group.diagonal,
                                  .numbers = group.numbers});
}

absl::Status RotateBack(const LayerGroup& rotated, const LayerGroup& group, Queue& queue) {
  return RotateWeights(group, Const(rotated.dequantized), group.dequantized, queue);
}

}  // namespace ptqwatch::internal
