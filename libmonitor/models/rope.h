#ifndef PTQWATCH_MODELS_ROPE_H_
#define PTQWATCH_MODELS_ROPE_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "models/model_config.h"

namespace ptqwatch::internal {

/// Cosines and sines of the angles of positions 0 to T - 1, each [T, rotated dimensions], times the
/// attention factor.
struct RopeTables {
  at::Tensor cosine;
  at::Tensor sine;
  bool interleaved = false;
};
/// LongRoPE's depend on whether `positions` exceeds the original context. May throw.
RopeTables MakeRopeTables(const RopeConfig& rope, int64_t positions);

/// Rotates the leading dimensions of heads [B, heads, T, head_dim] by their positions
/// (arXiv:2104.09864), in the pairs of the config. Differentiable. May throw.
at::Tensor Rotate(const at::Tensor& heads, const RopeTables& tables);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_ROPE_H_
