#ifndef PTQWATCH_CURVATURE_DIFFERENTIATE_H_
#define PTQWATCH_CURVATURE_DIFFERENTIATE_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "curvature/loss_surface.h"
#include "ptqwatch/execution_context.h"
#include "torch/csrc/autograd/autograd.h"

namespace ptqwatch::internal {

using torch::autograd::variable_list;

/// The tensors with respect to which the loss is differentiated.
std::vector<at::Tensor> LeafTensors(const LossSurface& surface);

/// Adds the gradients, one per leaf, to their parts of `sum`. Unused leaves have undefined ones.
void Accumulate(const LossSurface& surface, const variable_list& gradients, Vector& sum);

/// The value of a loss, or DataLoss if it is not finite.
absl::StatusOr<double> FiniteLoss(const at::Tensor& loss);

/// Returns DataLoss if the gradient is not finite.
absl::Status CheckGradient(const VectorSpace& space, const Vector& gradient);

/// Computes the mean loss and its gradient at the current parameters. Checks the context once per
/// batch and calls `after_batch`, if set, with the gradient so far.
absl::Status Differentiate(LossSurface& surface, double& loss, Vector& gradient,
                           const ExecutionContext& context,
                           const std::function<void(const Vector&)>& after_batch = {});

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_DIFFERENTIATE_H_
