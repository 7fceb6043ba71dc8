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
/// Left-looking in two levels: one float32 product updates 512 columns by all earlier ones; for
/// each 128 of them, another does so by the earlier ones of the 512, and one kernel quantizes them.
/// Cost: inputs cols^3 / 6 + layers rows cols^2 / 2 multiply-adds, (2 layers + 3 inputs) cols / 128
/// launches, where layers of a group count once.
absl::Status QuantizeByGptq(const LayerGroup& group, Queue& queue);

/// Takes the memory that QuantizeByGptq needs from `arena`.
absl::Status TakeGptqBuffers(const LayerGroup& group, Arena& arena);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_GPTQ_STEPS_H_
