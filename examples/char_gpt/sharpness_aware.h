#ifndef PTQWATCH_CHAR_GPT_SHARPNESS_AWARE_H_
#define PTQWATCH_CHAR_GPT_SHARPNESS_AWARE_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"

namespace ptqwatch::examples {

/// Sharpness-aware minimisation (arXiv 2010.01412): replaces the gradients g of `parameters` by
/// those at W + rho g / ||g||, the uphill neighbour at the distance `rho`, with the norm over all
/// parameters. The parameters keep their bits. `loss` computes the loss with a graph. Does nothing
/// if g is zero. Costs a forward and a backward pass.
/// REQUIRES: the gradients are those of `loss`; every parameter has one.
void TakeGradientsUphill(const std::vector<at::Tensor>& parameters, double rho,
                         absl::FunctionRef<at::Tensor()> loss);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_CHAR_GPT_SHARPNESS_AWARE_H_
