#ifndef PTQWATCH_CUDA_ROTATE_STEPS_H_
#define PTQWATCH_CUDA_ROTATE_STEPS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/compute_device.h"
#include "cuda/layer_group.h"

namespace ptqwatch::internal {

/// The group with memory of its own for weights, decoded weights and sums, if its spec asks for a
/// rotation; otherwise the group itself.
absl::StatusOr<LayerGroup> TakeRotated(const LayerGroup& group, Arena& arena);

/// Writes W B, and B S B for the sums, to the memory of `rotated`, as quantize/rotation.h; the
/// decoded weights, too, if the attempt needs those of an earlier one. Writes the diagonal of the
/// rotated H.
absl::Status Rotate(const LayerGroup& group, const LayerGroup& rotated, Queue& queue);

/// Writes the decoded weights of `rotated` times B to those of `group`.
absl::Status RotateBack(const LayerGroup& rotated, const LayerGroup& group, Queue& queue);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_ROTATE_STEPS_H_
