#ifndef PTQWATCH_MODELS_NORMS_H_
#define PTQWATCH_MODELS_NORMS_H_

#include "ATen/core/Tensor.h"
#include "models/model_config.h"

namespace ptqwatch::internal {

/// Normalizes over the last dimension. Differentiable twice. May throw.
/// `weight` and `bias` may be undefined if the kind has none.
at::Tensor Normalize(NormKind kind, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias, double eps);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_NORMS_H_
