#include "session/gradient_check.h"

#include <string>

#include "ATen/core/grad_mode.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "curvature/differentiate.h"

namespace ptqwatch::internal {
namespace {

// The loss with perturbed values in these entries.
absl::StatusOr<double> LossWithOthers(const Replica& replica, const std::vector<int>& entries,
                                      ReplicaSurface& surface) {
  std::vector<Replica::Override> others;
  for (int entry : entries) others.push_back({entry, Perturbed(replica.loaded(entry))});
  surface.Replace(others);
  const absl::StatusOr<at::Tensor> loss = surface.Loss(0, /*with_graph=*/false);
  PTQWATCH_RETURN_IF_ERROR(surface.MoveTo(nullptr, 0));
  PTQWATCH_RETURN_IF_ERROR(loss.status());
  return loss->item<double>();
}

// Entries of the scope without a gradient at any leaf.
absl::StatusOr<std::vector<int>> WithoutGradient(const std::vector<int>& scope,
                                                 ReplicaSurface& surface) {
  PTQWATCH_ASSIGN_OR_RETURN(const at::Tensor loss, surface.Loss(0, /*with_graph=*/true));
  std::vector<bool> reached(scope.size());
  const auto differentiate = [&] {
    const variable_list gradients =
        torch::autograd::grad({loss}, LeafTensors(surface), {}, /*retain_graph=*/false,
                              /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined()) reached[surface.leaves()[i].part] = true;
    }
    return absl::OkStatus();
  };
  PTQWATCH_RETURN_IF_ERROR(Guard("the loss cannot be differentiated",
                                 absl::StatusCode::kFailedPrecondition, differentiate));
  std::vector<int> missing;
  for (size_t part = 0; part < scope.size(); ++part) {
    if (!reached[part]) missing.push_back(scope[part]);
  }
  return missing;
}

}  // namespace

absl::Status CheckGradients(const Replica& replica, const std::vector<int>& scope,
                            ReplicaSurface& surface) {
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<int> missing, WithoutGradient(scope, surface));
  if (missing.empty()) return absl::OkStatus();
  at::NoGradGuard no_grad;
  PTQWATCH_ASSIGN_OR_RETURN(const double before, LossWithOthers(replica, {}, surface));
  PTQWATCH_ASSIGN_OR_RETURN(const double after, LossWithOthers(replica, missing, surface));
  if (after == before) return absl::OkStatus();  // this batch does not use it
  std::string name;
  for (int entry : missing) {
    PTQWATCH_ASSIGN_OR_RETURN(const double changed, LossWithOthers(replica, {entry}, surface));
    name = replica.name(entry);
    if (changed != before) break;
  }
  return absl::FailedPreconditionError(
      StrCat("the loss changes with '", name,
             "' but has no gradient to it (does the closure or the model use detach() or "
             "NoGradGuard?)"));
}

}  // namespace ptqwatch::internal
