#ifndef PTQWATCH_CUDA_ROUND_STEPS_H_
#define PTQWATCH_CUDA_ROUND_STEPS_H_

#include "absl/status/status.h"
#include "cuda/compute_device.h"
#include "cuda/layer_group.h"

namespace ptqwatch::internal {

/// Fits the grids of `source`, clipped if the spec asks for it, and counts the clipped groups.
absl::Status FitGrids(const LayerGroup& group, const GridSource& source, Queue& queue);
/// Takes the memory that FitGrids needs from `arena`.
absl::Status TakeFitBuffers(const LayerGroup& group, Arena& arena, Strided<double>* clipped);

/// Grids, codes and decoded weights of methods that round each weight by itself.
absl::Status RoundToGrids(const LayerGroup& group, Queue& queue);
absl::Status RoundToInt8(const LayerGroup& group, Queue& queue);
absl::Status RoundToNf4(const LayerGroup& group, Queue& queue);

/// The error of round to nearest for layers that are quantized: for GPTQ on the same grid, for
/// LLM.int8 without kept columns.
absl::Status RoundingError(const LayerGroup& group, const Strided<float>& error, Queue& queue);

/// AWQ: searches the ratio and quantizes with the best one. attempt.loss is the precision of the
/// search's losses.
absl::Status QuantizeByAwq(const LayerGroup& group, Queue& queue);
/// Takes from `arena` all that QuantizeByAwq does.
absl::Status TakeAwqBuffers(const LayerGroup& group, Arena& arena);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_ROUND_STEPS_H_
