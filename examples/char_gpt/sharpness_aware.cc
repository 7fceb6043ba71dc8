#include "sharpness_aware.h"

#include <cmath>

#include "ATen/core/grad_mode.h"

namespace ptqwatch::examples {

void TakeGradientsUphill(const std::vector<at::Tensor>& parameters, double rho,
                         absl::FunctionRef<at::Tensor()> loss) {
  double squares = 0;
  for (const at::Tensor& parameter : parameters) {
    const double norm = parameter.grad().norm().item<double>();
    squares += norm * norm;
  }
  if (!(squares > 0)) return;
  std::vector<at::Tensor> kept;
  {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : parameters) {
      kept.push_back(parameter.clone());
      parameter.add_(parameter.grad(), rho / std::sqrt(squares));
      parameter.mutable_grad().zero_();
    }
  }
  loss().backward();
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(kept[i]);
}

}  // namespace ptqwatch::examples
