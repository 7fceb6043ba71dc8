#ifndef PTQWATCH_MODELS_MLP_H_
#define PTQWATCH_MODELS_MLP_H_

#include "ATen/core/Tensor.h"
#include "models/model_config.h"

namespace ptqwatch::internal {

/// The parameters of xIELU (arXiv:2411.13010), undefined for other activations.
struct XieluTensors {
  at::Tensor alpha_p;  ///< [1], before softplus
  at::Tensor alpha_n;  ///< [1], before softplus
  at::Tensor beta;     ///< []
  at::Tensor eps;      ///< [], below 0
};

/// The input of the down matrix of gpt-oss's experts, [..., F], from gate_up [..., 2 F].
/// Differentiable twice. May throw.
at::Tensor ApplyClampedGate(const ClampedGate& gate, const at::Tensor& gate_up);

/// Applies an activation to each element. Differentiable twice. May throw.
at::Tensor Activate(Activation activation, const at::Tensor& x, const XieluTensors& xielu);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_MLP_H_
