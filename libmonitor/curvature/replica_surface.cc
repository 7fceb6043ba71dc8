#include "curvature/replica_surface.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "base/status_macros.h"
#include "curvature/make_vectors.h"
#include "snapshot/batches.h"

namespace ptqwatch::internal {

VectorSpace SpaceOf(const Replica& replica, const std::vector<int>& scope) {
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  // Vectors are float32 even for half-precision weights, which would round the products.
  at::ScalarType dtype = at::kFloat;
  for (int entry : scope) {
    const TensorEntry& parameter = replica.table().entries[static_cast<size_t>(entry)];
    parameters.emplace_back(parameter.name, parameter.tensor);
    if (parameter.tensor.scalar_type() == at::kDouble) dtype = at::kDouble;
  }
  VectorSpace space(parameters, dtype, replica.device());
  for (size_t part = 0; part < scope.size(); ++part) {
    const std::vector<Replica::Piece> pieces = replica.PiecesOf(scope[part]);
    if (!pieces.empty()) space.Split(part, pieces);
  }
  return space;
}

absl::StatusOr<std::unique_ptr<ReplicaSurface>> ReplicaSurface::Create(
    Replica* replica, const std::vector<int>& scope, const std::vector<Batch>* batches,
    double total_weight) {
  PTQWATCH_ASSIGN_OR_RETURN(Replica::Lease lease, replica->Use({}));
  return std::unique_ptr<ReplicaSurface>(
      new ReplicaSurface(replica, std::move(lease), scope, batches, total_weight));
}

ReplicaSurface::ReplicaSurface(Replica* replica, Replica::Lease lease,
                               const std::vector<int>& scope, const std::vector<Batch>* batches,
                               double total_weight)
    : replica_(replica),
      lease_(std::move(lease)),
      scope_(scope),
      batches_(batches),
      total_weight_(total_weight),
      space_(SpaceOf(*replica, scope)) {
  std::vector<int64_t> sizes;
  for (const VectorSpace::Part& piece : space_.pieces()) sizes.push_back(piece.elements);
  space_.UseKernels(MakeDeviceVectors(replica->device(), sizes));
  replica_->SetDifferentiable(scope_);
  for (size_t part = 0; part < scope_.size(); ++part) {
    for (const at::Tensor& leaf : replica_->leaves(scope_[part])) leaves_.push_back({leaf, part});
  }
}

double ReplicaSurface::Share(size_t index) const {
  const auto rows = [](const Batch& batch) {
    const bool known = !batch.empty() && batch[0].defined() && batch[0].dim() > 0;
    return known ? static_cast<double>(batch[0].size(0)) : 1.0;
  };
  double all = 0;
  for (const Batch& batch : *batches_) all += rows(batch);
  return all > 0 ? rows((*batches_)[index]) / all : LossSurface::Share(index);
}

absl::StatusOr<at::Tensor> ReplicaSurface::Loss(size_t index, bool with_graph) {
  PTQWATCH_ASSIGN_OR_RETURN(LossAndLogits both, Evaluate(index, with_graph));
  return std::move(both.loss);
}

absl::StatusOr<UnitLosses> ReplicaSurface::LossesByUnit(size_t index) {
  const Batch& batch = (*batches_)[index];
  const absl::StatusOr<LossValues> losses = replica_->Losses(batch);
  absl::StatusOr<UnitLosses> units =
      losses.ok() ? SumByUnit(*losses, batch) : absl::StatusOr<UnitLosses>(losses.status());
  if (!units.ok()) return OfBatch("curvature", index, units.status());
  return units;
}

absl::StatusOr<LossSurface::LossAndLogits> ReplicaSurface::LossWithLogits(size_t index) {
  absl::StatusOr<LossAndLogits> both = Evaluate(index, /*with_graph=*/true);
  if (both.ok() && !both->logits.defined()) return LossSurface::LossWithLogits(index);
  return both;
}

absl::StatusOr<LossSurface::LossAndLogits> ReplicaSurface::Evaluate(size_t index, bool with_graph) {
  const Batch& batch = (*batches_)[index];
  const absl::StatusOr<LossValues> evaluated =
      with_graph ? replica_->LossesWithGraph(batch) : replica_->Losses(batch);
  if (!evaluated.ok()) return OfBatch("curvature", index, evaluated.status());
  const LossValues& losses = *evaluated;
  if (const absl::Status valid = CheckLosses(losses, batch); !valid.ok()) {
    return OfBatch("curvature", index, valid);
  }
  if (with_graph && !losses.values.requires_grad()) {
    return absl::FailedPreconditionError(
        "the loss has no graph to the weights (does the closure use NoGradGuard or detach?)");
  }
  at::AutoGradMode mode(with_graph);
  const at::Tensor values = losses.values.to(at::kDouble);
  if (!losses.weights.defined()) {
    return LossAndLogits{values.sum() / total_weight_, losses.logits};
  }
  const at::Tensor weights = losses.weights.detach().to(at::kDouble);
  // A masked value may be anything, even NaN. Its derivative may not: the model's own backward
  // multiplies it by this 0.
  const at::Tensor sum = (values * weights).masked_fill(weights == 0, 0.0).sum();
  return LossAndLogits{sum / total_weight_, losses.logits};
}

absl::Status ReplicaSurface::MoveTo(const Vector* direction, double scale) {
  at::NoGradGuard no_grad;
  if (direction == nullptr) {
    lease_.Restore();
    return absl::OkStatus();
  }
  for (size_t part = 0; part < scope_.size(); ++part) {
    lease_.Move(scope_[part], space_.View(*direction, part), scale);
  }
  return absl::OkStatus();
}

void ReplicaSurface::Replace(const std::vector<Replica::Override>& overrides) {
  lease_.Restore();
  for (const Replica::Override& override : overrides) {
    const int parameter = replica_->ParameterOf(override.entry);
    if (std::count(scope_.begin(), scope_.end(), parameter) > 0) lease_.Write(override);
  }
}

double ReplicaSurface::WeightNorm() const {
  at::NoGradGuard no_grad;
  double sum = 0;
  for (int entry : scope_) {
    sum += replica_->loaded(entry).to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(sum);
}

Vector ReplicaSurface::Displacement(const std::vector<Replica::Override>& overrides) const {
  at::NoGradGuard no_grad;
  Vector displacement = space_.Zero();
  for (const Replica::Override& override : overrides) {
    const int parameter = replica_->ParameterOf(override.entry);
    const auto found = std::find(scope_.begin(), scope_.end(), parameter);
    if (found == scope_.end()) continue;
    const at::Tensor loaded = replica_->loaded(override.entry);
    const at::Tensor part = space_.View(displacement, static_cast<size_t>(found - scope_.begin()))
                                .view({-1})
                                .narrow(0, replica_->first_element(override.entry), loaded.numel())
                                .view(loaded.sizes());
    // The replica would hold the override rounded to the weight's dtype.
    part.copy_(override.value.reshape(loaded.sizes()).to(loaded.options()));
    part.sub_(loaded);
  }
  return displacement;
}

}  // namespace ptqwatch::internal
