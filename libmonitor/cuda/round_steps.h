#ifndef PTQWATCH_CUDA_ROUND_STEPS_H_
#define PTQWATCH_CUDA_ROUND_STEPS_H_

#include "absl/status/status.h"
#include "cuda/compute_device.h"
#include "cuda/layer_group.h"

namespace ptqwatch::internal {

/// The grids of `source`, clipped where the spec asks for it, and the number of clipped groups.
absl::Status FitGrids(const LayerGroup& group, const GridSource& source, Queue& queue);
/// Takes from `arena` all that FitGrids does.
absl::Status TakeFitBuffers(const LayerGroup& group, Arena& arena, Strided<double>* clipped);

/// Grids, codes and decoded weights of methods that look at one weight at a time: RTN, NF4 and
/// LLM.int8.
absl::Status QuantizeByRounding(const LayerGroup& group, Queue& queue);

/// What round to nearest misses, for layers that are quantized: GPTQ's on the same grid, LLM.int8
/// with no column kept.
absl::Status RoundingError(const LayerGroup& group, const Strided<float>& error, Queue& queue);

/// AWQ: the search, and what won. Its losses are found with the precision of attempt.loss.
absl::Status QuantizeByAwq(const LayerGroup& group, Queue& queue);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_ROUND_STEPS_H_
