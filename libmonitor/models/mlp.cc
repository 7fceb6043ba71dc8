#include "models/mlp.h"

#include <cmath>
#include <numbers>
#include <optional>

#include "ATen/TensorOperators.h"
#include "ATen/ops/gelu.h"
#include "ATen/ops/silu.h"
#include "ATen/ops/softplus.h"
#include "ATen/ops/where.h"

namespace ptqwatch::internal {
namespace {

at::Tensor Xielu(const at::Tensor& x, const XieluTensors& xielu) {
  const at::Tensor alpha_p = at::softplus(xielu.alpha_p);
  const at::Tensor alpha_n = xielu.beta + at::softplus(xielu.alpha_n);
  return at::where(x > 0, alpha_p * x * x + xielu.beta * x,
                   (x.minimum(xielu.eps).expm1() - x) * alpha_n + xielu.beta * x);
}

at::Tensor GeluNew(const at::Tensor& x) {
  const at::Tensor inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x.pow(3.0));
  return 0.5 * x * (1.0 + inner.tanh());
}

}  // namespace

at::Tensor ApplyClampedGate(const ClampedGate& clamped, const at::Tensor& gate_up) {
  const at::Tensor gate = gate_up.slice(-1, 0, std::nullopt, 2).clamp(std::nullopt, clamped.limit);
  const at::Tensor up = gate_up.slice(-1, 1, std::nullopt, 2).clamp(-clamped.limit, clamped.limit);
  return (up + 1) * (gate * (gate * clamped.alpha).sigmoid());
}

at::Tensor Activate(Activation activation, const at::Tensor& x, const XieluTensors& xielu) {
  switch (activation) {
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kXielu:
      return Xielu(x, xielu);
    case Activation::kGeluNew:
      return GeluNew(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
  }
  return x;
}

}  // namespace ptqwatch::internal
