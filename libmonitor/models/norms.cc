#include "models/norms.h"

#include "ATen/TensorOperators.h"
#include "ATen/ops/layer_norm.h"

namespace ptqwatch::internal {
namespace {

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor variance = x.pow(2).mean(-1, /*keepdim=*/true);
  return weight * (x * (variance + eps).rsqrt());
}

}  // namespace

at::Tensor Normalize(NormKind kind, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias, double eps) {
  if (kind == NormKind::kRms) return RmsNorm(x, weight, eps);
  if (kind == NormKind::kRmsPlusOne) return RmsNorm(x, 1.0 + weight, eps);
  return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

}  // namespace ptqwatch::internal
