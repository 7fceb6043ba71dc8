#include "models/mlp.h"

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

}  // namespace

at::Tensor Activate(Activation activation, const at::Tensor& x, const XieluTensors& xielu) {
  switch (activation) {
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kXielu:
      return Xielu(x, xielu);
  }
  return x;
}

}  // namespace ptqwatch::internal
