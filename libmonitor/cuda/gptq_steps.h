#ifndef PTQWATCH_CUDA_GPTQ_STEPS_H_
#define PTQWATCH_CUDA_GPTQ_STEPS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "cuda/compute_device.h"
#include "cuda/layer_group.h"

namespace ptqwatch::internal {

/// GPTQ in its LDLQ form, as quantize/gptq.cc, with attempt.damp. Whether H could be factorised is
/// among the numbers; if not, codes are of no use. Needs the group's diagonal.
///
/// Left-looking: a block of 128 columns is first updated by all columns before it, in one float32
/// product, and then quantized by one kernel. Cost: inputs cols^3 / 6 + layers rows cols^2 / 2
/// multiply-adds, 2 cols / 128 launches.
absl::Status QuantizeByGptq(const LayerGroup& group, Queue& queue);

/// Takes from `arena` all that QuantizeByGptq does.
absl::Status TakeGptqBuffers(const LayerGroup& group, ComputeDevice& device, Arena& arena);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_GPTQ_STEPS_H_
