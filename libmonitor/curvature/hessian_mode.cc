#include "curvature/hessian_mode.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "curvature/hessian_operator.h"
#include "curvature/storage_watcher.h"

namespace ptqwatch::internal {
namespace {

// A wrong second derivative, as opposed to a rounded one, is off by far more than this.
constexpr double kSymmetryTolerance = 0.01;
// A right product and a difference are at most 1.6 times as far apart as the difference and that
// with half the step, in 200 cases of 30 models. A loss whose backward takes its saved softmax for
// a constant is off by 0.01 to 0.9, the least in language models that are not trained.
constexpr double kOfStepCheck = 5;
constexpr double kLeastDifference = 1e-3;
// Differences that are within this of products and of each other find the same eigenvectors.
constexpr double kRoughlyEqual = 0.01;

// A surface reduced to its first batch.
class FirstBatch final : public LossSurface {
 public:
  explicit FirstBatch(LossSurface* whole) : whole_(whole) {}
  const VectorSpace& space() const override { return whole_->space(); }
  const std::vector<Leaf>& leaves() const override { return whole_->leaves(); }
  size_t batches() const override { return 1; }
  absl::StatusOr<at::Tensor> Loss(size_t index, bool with_graph) override {
    return whole_->Loss(index, with_graph);
  }
  absl::StatusOr<LossAndLogits> LossWithLogits(size_t index) override {
    return whole_->LossWithLogits(index);
  }
  absl::Status MoveTo(const Vector* direction, double scale) override {
    return whole_->MoveTo(direction, scale);
  }
  uint64_t generation() const override { return whole_->generation(); }
  double WeightNorm() const override { return whole_->WeightNorm(); }

 private:
  LossSurface* whole_;
};

Vector RandomVector(const VectorSpace& space, uint64_t draw, const ExecutionContext& context) {
  Vector vector = space.Zero();
  space.FillRademacher(context.seeds.Seed("capability", draw), vector);
  return vector;
}

// hu = H u by finite differences. Returns the StepCheck.
absl::StatusOr<double> Difference(LossSurface* surface, const Vector& u, Vector& hu,
                                  const ExecutionContext& context) {
  PTQWATCH_ASSIGN_OR_RETURN(
      const std::unique_ptr<HessianOperator> hessian,
      HessianOperator::Create(surface, HessianMode::kFiniteDifference, context));
  PTQWATCH_RETURN_IF_ERROR(hessian->Apply(u, hu, context));
  return hessian->StepCheck(u, hu, context);
}

// Compares |u'Hv - v'Hu| with ||Hv|| for another random v.
absl::Status CheckSymmetry(HessianOperator& hessian, const Vector& u, const Vector& hu,
                           const ExecutionContext& context) {
  const VectorSpace& space = hessian.space();
  const Vector v = RandomVector(space, 1, context);
  Vector hv = space.Zero();
  PTQWATCH_RETURN_IF_ERROR(hessian.Apply(v, hv, context));
  const double scale = std::max(space.Norm(hu), space.Norm(hv));
  const double gap = std::abs(space.Dot(u, hv) - space.Dot(v, hu));
  if (gap <= kSymmetryTolerance * scale) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("second derivatives are not symmetric (|u'Hv - v'Hu| = ", gap,
             " where ||Hv|| = ", scale, "): an operator of the model differentiates wrongly"));
}

// hu = H u by a retained graph. Also returns the bytes of that graph, if known.
absl::Status MultiplyByGraph(LossSurface* surface, const Vector& u, Vector& hu,
                             std::optional<int64_t>& graph_bytes, const ExecutionContext& context) {
  const VectorSpace& space = surface->space();
  StorageWatcher watcher;
  absl::StatusOr<std::unique_ptr<HessianOperator>> hessian =
      HessianOperator::Create(surface, HessianMode::kRetainedGraph, context);
  watcher.Stop();
  PTQWATCH_RETURN_IF_ERROR(hessian.status());
  PTQWATCH_RETURN_IF_ERROR((*hessian)->Apply(u, hu, context));
  PTQWATCH_RETURN_IF_ERROR(CheckSymmetry(**hessian, u, hu, context));
  if (watcher.operators() > 0) {
    // Destroying the operator frees its graph; weights and batch stay.
    const int64_t with = watcher.LiveBytes();
    hessian->reset();
    graph_bytes = std::max<int64_t>(0, with - watcher.LiveBytes() - space.bytes());
  }
  return absl::OkStatus();
}

enum class Comparison { kNone, kRight, kInterchangeable };

// Compares a product with a difference along `u`, if that is good enough.
absl::StatusOr<Comparison> CheckByDifference(LossSurface* surface, const Vector& u,
                                             const Vector& hu, const ExecutionContext& context) {
  const VectorSpace& space = surface->space();
  Vector rest = space.Zero();
  const absl::StatusOr<double> check = Difference(surface, u, rest, context);
  if (absl::IsCancelled(check.status())) return check.status();
  if (!check.ok() || *check > kMaxStepCheck) return Comparison::kNone;
  const double norm = space.Norm(rest);
  space.Axpy(-1, hu, rest);
  const double gap = space.Norm(rest);
  if (gap <= (kLeastDifference + kOfStepCheck * *check) * norm) {
    const bool near = *check <= kRoughlyEqual && gap <= kRoughlyEqual * norm;
    return near ? Comparison::kInterchangeable : Comparison::kRight;
  }
  return absl::FailedPreconditionError(StrFormat(
      "a product with the second derivative is %.2g of itself away from a finite difference: an "
      "operator of the model differentiates wrongly (does its backward treat what it saved as a "
      "constant?)",
      gap / norm));
}

// Compares as CheckByDifference, along a random direction without the elements whose gradient is 0.
// Some operators leave out of the gradient what the loss depends on, such as the row of an
// embedding that is its padding_idx: a difference along it has no part in the Hessian of what is
// trained.
absl::StatusOr<Comparison> CheckTrainedByDifference(LossSurface* surface,
                                                    const ExecutionContext& context) {
  PTQWATCH_ASSIGN_OR_RETURN(
      const std::unique_ptr<HessianOperator> hessian,
      HessianOperator::Create(surface, HessianMode::kRecomputedGraph, context));
  Vector u = RandomVector(surface->space(), 0, context);
  u.elements.mul_(hessian->gradient().elements.ne(0));
  Vector hu = surface->space().Zero();
  PTQWATCH_RETURN_IF_ERROR(hessian->Apply(u, hu, context));
  return CheckByDifference(surface, u, hu, context);
}

// If the loss is too rough along a random direction, compares along the gradient.
absl::Status TryGraph(LossSurface* surface, HessianChoice& choice,
                      const ExecutionContext& context) {
  const VectorSpace& space = surface->space();
  Vector u = RandomVector(space, 0, context);
  Vector hu = space.Zero();
  PTQWATCH_RETURN_IF_ERROR(MultiplyByGraph(surface, u, hu, choice.graph_bytes, context));
  const absl::StatusOr<Comparison> random = CheckByDifference(surface, u, hu, context);
  if (absl::IsFailedPrecondition(random.status())) {
    const absl::StatusOr<Comparison> trained = CheckTrainedByDifference(surface, context);
    const bool right = trained.ok() && *trained != Comparison::kNone;
    return right || absl::IsCancelled(trained.status()) ? trained.status() : random.status();
  }
  PTQWATCH_RETURN_IF_ERROR(random.status());
  choice.rough_differences = *random == Comparison::kInterchangeable;
  if (*random != Comparison::kNone) return absl::OkStatus();
  {
    PTQWATCH_ASSIGN_OR_RETURN(
        const std::unique_ptr<HessianOperator> hessian,
        HessianOperator::Create(surface, HessianMode::kRecomputedGraph, context));
    u = space.Copy(hessian->gradient());
    PTQWATCH_RETURN_IF_ERROR(hessian->Apply(u, hu, context));
  }
  return CheckByDifference(surface, u, hu, context).status();
}

absl::Status TryGaussNewton(LossSurface* surface, const ExecutionContext& context) {
  const VectorSpace& space = surface->space();
  PTQWATCH_ASSIGN_OR_RETURN(const std::unique_ptr<HessianOperator> matrix,
                            HessianOperator::Create(surface, HessianMode::kGaussNewton, context));
  const Vector u = RandomVector(space, 0, context);
  Vector gu = space.Zero();
  PTQWATCH_RETURN_IF_ERROR(matrix->Apply(u, gu, context));
  return CheckSymmetry(*matrix, u, gu, context);
}

absl::Status TryDifference(LossSurface* surface, const ExecutionContext& context) {
  const VectorSpace& space = surface->space();
  Vector hu = space.Zero();
  PTQWATCH_ASSIGN_OR_RETURN(const double check,
                            Difference(surface, RandomVector(space, 0, context), hu, context));
  if (check <= kMaxStepCheck) return absl::OkStatus();
  std::string reason = "the loss is too rough for it";
  for (const LossSurface::Leaf& leaf : surface->leaves()) {
    const at::ScalarType dtype = leaf.tensor.scalar_type();
    if (at::isReducedFloatingType(dtype)) {
      reason = StrCat("weights in ", at::toString(dtype), " cannot represent such small steps");
      break;
    }
  }
  return absl::FailedPreconditionError(
      StrFormat("a product with the Hessian changes by %.2g of itself when the step of the "
                "finite difference is halved: %s",
                check, reason));
}

}  // namespace

absl::StatusOr<HessianChoice> ChooseHessianMode(LossSurface* surface, HessianMode asked,
                                                int64_t max_graph_bytes,
                                                const ExecutionContext& context) {
  FirstBatch first(surface);
  const bool automatic = asked == HessianMode::kAuto;
  std::string reasons;
  std::string detail;
  if (asked == HessianMode::kGaussNewton) {
    const absl::Status status = TryGaussNewton(&first, context);
    if (status.ok()) return HessianChoice{asked, std::nullopt};
    return absl::FailedPreconditionError(StrCat(ToString(asked), ": ", status));
  }
  if (asked != HessianMode::kFiniteDifference) {
    HessianChoice choice;
    absl::Status status = TryGraph(&first, choice, context);
    if (status.ok()) {
      if (choice.graph_bytes) *choice.graph_bytes *= static_cast<int64_t>(surface->batches());
      const bool fits = choice.graph_bytes && *choice.graph_bytes <= max_graph_bytes;
      choice.mode = !automatic ? asked
                    : fits     ? HessianMode::kRetainedGraph
                               : HessianMode::kRecomputedGraph;
      return choice;
    }
    reasons = StrCat(ToString(automatic ? HessianMode::kRetainedGraph : asked), ": ", status);
    if (!automatic) return absl::FailedPreconditionError(reasons);
    detail = std::string(status.message());
  }
  const absl::Status status = TryDifference(&first, context);
  if (status.ok()) {
    return HessianChoice{HessianMode::kFiniteDifference, std::nullopt, false, std::move(detail)};
  }
  return absl::FailedPreconditionError(StrCat(reasons, reasons.empty() ? "" : "; ",
                                              ToString(HessianMode::kFiniteDifference), ": ",
                                              status));
}

std::optional<HessianMode> SmallerMode(HessianMode mode) {
  switch (mode) {
    case HessianMode::kRetainedGraph:
      return HessianMode::kRecomputedGraph;
    case HessianMode::kRecomputedGraph:
      return HessianMode::kFiniteDifference;
    case HessianMode::kAuto:
    case HessianMode::kFiniteDifference:
    case HessianMode::kGaussNewton:
      break;
  }
  return std::nullopt;
}

}  // namespace ptqwatch::internal
