#ifndef PTQWATCH_CUDA_GPTQ_STEPS_H_
#define PTQWATCH_CUDA_GPTQ_STEPS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "cuda/compute_device.h"
#include "cuda/layer_group.h"

namespace ptqwatch::internal {

/// GPTQ in its LDLQ form, as in quantize/gptq.cc, with attempt.damp. `numbers` tells whether H
/// could be factorised; if not, the codes are invalid. Needs the group's diagonal.
///
/// Left-looking: one float32 product updates a block of 128 columns by all earlier columns, then
/// one kernel quantizes the block. Cost: inputs cols^3 / 6 + layers rows cols^2 / 2 multiply-adds,
/// 2 cols / 128 launches.
absl::Status QuantizeByGptq(const LayerGroup& group, Queue& queue);

/// Takes the memory that QuantizeByGptq needs from `arena`.
absl::Status TakeGptqBuffers(const LayerGroup& group, ComputeDevice& device, Arena& arena);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_GPTQ_STEPS_H_
