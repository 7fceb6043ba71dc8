#ifndef PTQWATCH_CURVATURE_DIFFERENTIATE_H_
#define PTQWATCH_CURVATURE_DIFFERENTIATE_H_

#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/strings.h"
#include "c10/util/Exception.h"
#include "curvature/loss_surface.h"
#include "ptqwatch/execution_context.h"
#include "torch/csrc/autograd/autograd.h"

namespace ptqwatch::internal {

using torch::autograd::variable_list;

/// Whether LibTorch ran out of memory: its CPU allocator throws a plain c10::Error.
inline bool IsOutOfMemory(const c10::Error& error) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         std::string_view(error.what_without_backtrace()).find("can't allocate memory") !=
             std::string_view::npos;
}

/// What `function` returns, or the status of what it throws: ResourceExhausted where memory ran
/// out, else FailedPrecondition, beginning with `what`.
template <typename Function>
absl::Status Caught(std::string_view what, Function&& function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(StrCat(what, ": out of memory"));
  } catch (const c10::Error& error) {
    const std::string message = StrCat(what, ": ", error.what_without_backtrace());
    return IsOutOfMemory(error) ? absl::ResourceExhaustedError(message)
                                : absl::FailedPreconditionError(message);
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(StrCat(what, ": ", error.what()));
  } catch (...) {
    return absl::FailedPreconditionError(StrCat(what, ": not a std::exception"));
  }
}

/// The tensors that the loss is differentiated by.
std::vector<at::Tensor> LeafTensors(const LossSurface& surface);

/// sum += gradients (one a leaf), by part; those of unused leaves are undefined.
void Accumulate(const LossSurface& surface, const variable_list& gradients, Vector& sum);

/// The value of a loss; DataLoss where it is not finite.
absl::StatusOr<double> FiniteLoss(const at::Tensor& loss);

/// DataLoss where the gradient is not finite.
absl::Status CheckGradient(const VectorSpace& space, const Vector& gradient);

/// Mean loss and gradient where the parameters are now. Looks at the context once a batch.
absl::Status Differentiate(LossSurface& surface, double& loss, Vector& gradient,
                           const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_DIFFERENTIATE_H_
