#include "curvature/hessian_operator.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "c10/core/AutogradState.h"
#include "curvature/differentiate.h"
#include "curvature/gauss_newton_operator.h"
#include "snapshot/math_attention.h"

namespace ptqwatch::internal {
namespace {

// The step of a central difference is chosen so that the gradient changes by this share of itself
// from one side to the other. With a smaller step rounding dominates, with a larger one curvature.
// No multiple of ||W|| suits all directions: on a trained GPT, 1.5e-3 is right for a random
// direction but 31 % off along the top eigenvector, where 2e-5 is right.
constexpr double kGradientChange = 0.01;
// Steps in multiples of ||W||. The largest is tried first, because it suits random directions.
constexpr double kMaxStep = 3e-3;
constexpr double kMinStep = 1e-5;
// A step is kept if it is within this factor of the ideal one, or after kMaxStepTries tries.
constexpr double kStepTolerance = 2;
// The step of a one-sided difference, relative to a central one's. Its error falls with the step
// rather than with the step's square: along the top eigenvector of trained GPTs, up to 9e-3 with a
// fifth of the central step, 5e-3 with a tenth, and 3e-3 with a twentieth, where rounding shows.
constexpr double kOneSidedStep = 0.1;
constexpr double kOneSidedTolerance = 3;
constexpr int kMaxStepTries = 3;

// Keeps backward passes on the calling thread during its lifetime.
class SingleThreadedBackward {
 public:
  SingleThreadedBackward()
      : before_(c10::AutogradState::get_tls_state().get_multithreading_enabled()) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  ~SingleThreadedBackward() {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(before_);
  }
  SingleThreadedBackward(const SingleThreadedBackward&) = delete;
  SingleThreadedBackward& operator=(const SingleThreadedBackward&) = delete;

 private:
  const bool before_;
};

// An operator that can take gradients at points near W.
class SteppingOperator : public HessianOperator {
 protected:
  explicit SteppingOperator(LossSurface* surface)
      : HessianOperator(surface), generation_(surface->generation()) {}

  // To be called when the gradient at W is known.
  void PrepareSteps() {
    const double norm = surface_->WeightNorm();
    weight_norm_ = norm > 0 ? norm : 1;
    step_ = kMaxStep * weight_norm_;
    aim_ = kGradientChange * space().Norm(gradient_);
  }

  absl::Status CheckGeneration() const {
    if (surface_->generation() == generation_) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "the weights were written to between a gradient and a product with its derivative");
  }

  // hv = (g(W + e v) - g(W)) / e.
  absl::Status OneSidedProduct(const Vector& v, Vector& hv, const ExecutionContext& context) {
    PTQWATCH_RETURN_IF_ERROR(CheckGeneration());
    const double norm = space().Norm(v);
    hv.elements.zero_();
    if (norm == 0) return absl::OkStatus();
    PTQWATCH_RETURN_IF_ERROR(
        MoveBack(StepAhead(v, norm, kOneSidedStep, kOneSidedTolerance, hv, context)));
    space().Axpy(-1, gradient_, hv);
    space().Scale(norm / (kOneSidedStep * step_), hv);
    return absl::OkStatus();
  }

  // Returns the surface to W, after a failure too. What was computed at W is then valid again.
  absl::Status MoveBack(absl::Status status) {
    status.Update(surface_->MoveTo(nullptr, 0));
    generation_ = surface_->generation();
    return status;
  }

  // Computes ahead = g(W + e v) with e = share * step_ / norm and adapts the step to v. Tries the
  // previous product's step first, which usually fits.
  absl::Status StepAhead(const Vector& v, double norm, double share, double tolerance,
                         Vector& ahead, const ExecutionContext& context) {
    for (int tries = 1;; ++tries) {
      PTQWATCH_RETURN_IF_ERROR(GradientAt(v, share * step_ / norm, ahead, context));
      if (keep_step_ || tries == kMaxStepTries) return absl::OkStatus();
      const double change = 2 / share * space().Distance(ahead, gradient_);
      const double wanted = std::clamp(change > 0 ? step_ * aim_ / change : HUGE_VAL,
                                       kMinStep * weight_norm_, kMaxStep * weight_norm_);
      if (wanted <= tolerance * step_ && step_ <= tolerance * wanted) return absl::OkStatus();
      step_ = wanted;
    }
  }

  absl::Status GradientAt(const Vector& v, double e, Vector& gradient,
                          const ExecutionContext& context) {
    PTQWATCH_RETURN_IF_ERROR(surface_->MoveTo(&v, e));
    double loss = 0;
    if (along_ == nullptr) return Differentiate(*surface_, loss, gradient, context);
    along_->clear();
    return Differentiate(*surface_, loss, gradient, context,
                         [&](const Vector& sum) { AddBatch(v, sum); });
  }

  double step_ = 0;  // of a central difference, for a direction of norm 1
  bool keep_step_ = false;

 private:
  double weight_norm_ = 0;
  double aim_ = 0;  // the change of the gradient from one side to the other
  uint64_t generation_ = 0;
};

// Differentiates the gradient's graph, which is kept for all batches or rebuilt for each product.
class GraphOperator final : public SteppingOperator {
 public:
  GraphOperator(LossSurface* surface, bool keep, bool differences)
      : SteppingOperator(surface),
        leaves_(LeafTensors(*surface)),
        keep_(keep),
        differences_(differences) {}

  absl::Status Build(const ExecutionContext& context) {
    gradient_ = space().Zero();
    if (keep_) {
      for (size_t i = 0; i < surface_->batches(); ++i) {
        PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
        PTQWATCH_ASSIGN_OR_RETURN(variable_list gradients, GradientWithGraph(i, loss_));
        Accumulate(*surface_, gradients, gradient_);
        graphs_.push_back(std::move(gradients));
      }
      PTQWATCH_RETURN_IF_ERROR(CheckGradient(space(), gradient_));
    } else {
      PTQWATCH_RETURN_IF_ERROR(Differentiate(*surface_, loss_, gradient_, context));
    }
    if (differences_) PrepareSteps();
    return absl::OkStatus();
  }

  bool rough_needs_check() const override { return differences_; }

 private:
  absl::Status Product(const Vector& v, Vector& hv, const ExecutionContext& context) override {
    // The parameters are views of one buffer, for which autograd's own version check is off: after
    // a write, a product would be silently wrong.
    PTQWATCH_RETURN_IF_ERROR(CheckGeneration());
    hv.elements.zero_();
    for (size_t i = 0; i < surface_->batches(); ++i) {
      PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
      if (keep_) {
        PTQWATCH_RETURN_IF_ERROR(AddProduct(graphs_[i], v, hv));
      } else {
        double loss = 0;
        PTQWATCH_ASSIGN_OR_RETURN(const variable_list gradients, GradientWithGraph(i, loss));
        PTQWATCH_RETURN_IF_ERROR(AddProduct(gradients, v, hv));
      }
      AddBatch(v, hv);
    }
    return absl::OkStatus();
  }

  absl::Status RoughProduct(const Vector& v, Vector& hv, const ExecutionContext& context) override {
    if (!differences_) return Product(v, hv, context);
    // The gradient at W comes from the same form: a difference of roundings would be divided by e.
    std::optional<MathAttention> twice;
    if (keep_) twice.emplace();
    return OneSidedProduct(v, hv, context);
  }

  // The gradients by leaf, with the graph to the leaves. Adds the batch's loss to `loss`.
  absl::StatusOr<variable_list> GradientWithGraph(size_t batch, double& loss) {
    const MathAttention twice;
    PTQWATCH_ASSIGN_OR_RETURN(const at::Tensor value, surface_->Loss(batch, /*with_graph=*/true));
    PTQWATCH_ASSIGN_OR_RETURN(const double finite, FiniteLoss(value));
    loss += finite;
    return Guard("the loss cannot be differentiated", absl::StatusCode::kFailedPrecondition,
                 [&]() -> absl::StatusOr<variable_list> {
                   at::AutoGradMode with_graph(true);
                   return torch::autograd::grad({value}, leaves_, {}, /*retain_graph=*/true,
                                                /*create_graph=*/true, /*allow_unused=*/true);
                 });
  }

  // Adds the derivative of the gradients along v to hv.
  absl::Status AddProduct(const variable_list& gradients, const Vector& v, Vector& hv) {
    variable_list outputs;
    variable_list factors;
    for (size_t i = 0; i < gradients.size(); ++i) {
      // A gradient without a graph is constant and contributes nothing to the product.
      if (!gradients[i].defined() || !gradients[i].requires_grad()) continue;
      outputs.push_back(gradients[i]);
      factors.push_back(space().View(v, surface_->leaves()[i].part).to(gradients[i].scalar_type()));
    }
    if (outputs.empty()) return absl::OkStatus();
    return Guard(
        "the gradient cannot be differentiated", absl::StatusCode::kFailedPrecondition, [&] {
          Accumulate(*surface_,
                     torch::autograd::grad(outputs, leaves_, factors, /*retain_graph=*/keep_,
                                           /*create_graph=*/false, /*allow_unused=*/true),
                     hv);
          return absl::OkStatus();
        });
  }

  std::vector<at::Tensor> leaves_;
  std::vector<variable_list> graphs_;  // one per batch, if kept
  const bool keep_;
  const bool differences_;  // one-sided ones are the rough products
};

class FiniteDifferenceOperator final : public SteppingOperator {
 public:
  explicit FiniteDifferenceOperator(LossSurface* surface) : SteppingOperator(surface) {}

  absl::Status Build(const ExecutionContext& context) {
    gradient_ = space().Zero();
    PTQWATCH_RETURN_IF_ERROR(Differentiate(*surface_, loss_, gradient_, context));
    PrepareSteps();
    return absl::OkStatus();
  }

  bool exact() const override { return false; }

  absl::StatusOr<double> StepCheck(const Vector& v, const Vector& hv,
                                   const ExecutionContext& context) override {
    Vector half = space().Zero();
    step_ /= 2;
    keep_step_ = true;
    absl::Status status = Apply(v, half, context);
    keep_step_ = false;
    step_ *= 2;
    if (!status.ok()) return status;
    const double norm = space().Norm(half);
    space().Axpy(-1, hv, half);
    const double difference = space().Norm(half);
    return difference == 0 ? 0.0 : difference / norm;
  }

 private:
  absl::Status Product(const Vector& v, Vector& hv, const ExecutionContext& context) override {
    PTQWATCH_RETURN_IF_ERROR(CheckGeneration());
    const double norm = space().Norm(v);
    hv.elements.zero_();
    if (norm == 0) return absl::OkStatus();
    if (!ahead_.defined()) ahead_ = space().Zero();
    absl::Status status = StepAhead(v, norm, /*share=*/1, kStepTolerance, ahead_, context);
    const double e = step_ / norm;
    std::vector<double> ahead;
    if (along_ != nullptr) ahead = std::exchange(*along_, {});
    if (status.ok()) status = GradientAt(v, -e, hv, context);
    PTQWATCH_RETURN_IF_ERROR(MoveBack(std::move(status)));
    space().Scale(-1 / (2 * e), hv);
    space().Axpy(1 / (2 * e), ahead_, hv);
    for (size_t b = 0; b < ahead.size(); ++b) {
      (*along_)[b] = (ahead[b] - (*along_)[b]) / (2 * e);
    }
    return absl::OkStatus();
  }

  absl::Status RoughProduct(const Vector& v, Vector& hv, const ExecutionContext& context) override {
    return OneSidedProduct(v, hv, context);
  }

  Vector ahead_;  // g(W + e v) of the last central difference
};

absl::Status CheckProduct(const VectorSpace& space, const Vector& hv) {
  if (space.IsFinite(hv)) return absl::OkStatus();
  return absl::DataLossError("a product with the Hessian is not finite");
}

}  // namespace

absl::StatusOr<std::unique_ptr<HessianOperator>> HessianOperator::Create(
    LossSurface* surface, HessianMode mode, const ExecutionContext& context,
    bool rough_differences) {
  SingleThreadedBackward single_threaded;
  if (surface->space().dimension() == 0) {
    return absl::FailedPreconditionError("no parameter is in the scope of the curvature");
  }
  if (mode == HessianMode::kGaussNewton) return CreateGaussNewtonOperator(surface, context);
  if (mode != HessianMode::kFiniteDifference) {
    auto exact = std::make_unique<GraphOperator>(surface, mode == HessianMode::kRetainedGraph,
                                                 rough_differences);
    PTQWATCH_RETURN_IF_ERROR(exact->Build(context));
    return exact;
  }
  auto difference = std::make_unique<FiniteDifferenceOperator>(surface);
  PTQWATCH_RETURN_IF_ERROR(difference->Build(context));
  return difference;
}

absl::Status HessianOperator::Apply(const Vector& v, Vector& hv, const ExecutionContext& context) {
  SingleThreadedBackward single_threaded;
  ++products_;
  PTQWATCH_RETURN_IF_ERROR(Product(v, hv, context));
  return CheckProduct(space(), hv);
}

std::vector<double> HessianOperator::shares() const {
  std::vector<double> shares;
  for (size_t b = 0; b < surface_->batches(); ++b) shares.push_back(surface_->Share(b));
  return shares;
}

absl::Status HessianOperator::ApplyByShare(const Vector& v, Vector& hv, std::vector<double>& along,
                                           const ExecutionContext& context) {
  along.clear();
  along_ = &along;
  const absl::Status status = Apply(v, hv, context);
  along_ = nullptr;
  for (size_t b = along.size(); b-- > 1;) along[b] -= along[b - 1];
  return status;
}

absl::Status HessianOperator::ApplyRoughly(const Vector& v, Vector& hv,
                                           const ExecutionContext& context) {
  SingleThreadedBackward single_threaded;
  ++products_;
  PTQWATCH_RETURN_IF_ERROR(RoughProduct(v, hv, context));
  return CheckProduct(space(), hv);
}

absl::StatusOr<double> HessianOperator::StepCheck(const Vector&, const Vector&,
                                                  const ExecutionContext&) {
  return 0.0;
}

absl::StatusOr<double> CheckDifference(HessianOperator& hessian, std::string_view mode_detail,
                                       const ExecutionContext& context) {
  if (hessian.exact()) return 0.0;
  const std::string instead =
      mode_detail.empty() ? "" : StrCat("; no exact products: ", mode_detail);
  const VectorSpace& space = hessian.space();
  Vector u = space.Zero();
  Vector hu = space.Zero();
  space.FillRademacher(context.seeds.Seed("step", 0), u);
  PTQWATCH_RETURN_IF_ERROR(hessian.Apply(u, hu, context));
  PTQWATCH_ASSIGN_OR_RETURN(const double check, hessian.StepCheck(u, hu, context));
  if (check > kMaxStepCheck) {
    return absl::FailedPreconditionError(
        StrFormat("a product with the Hessian changes by %.2g of itself when the step of the "
                  "finite difference is halved: the loss is too rough for it%s",
                  check, instead));
  }
  Vector v = space.Zero();
  Vector hv = space.Zero();
  space.FillRademacher(context.seeds.Seed("step", 1), v);
  PTQWATCH_RETURN_IF_ERROR(hessian.Apply(v, hv, context));
  const double scale = std::max(space.Norm(hu), space.Norm(hv));
  const double gap = std::abs(space.Dot(u, hv) - space.Dot(v, hu));
  if (gap <= kMaxStepCheck * scale) return check;
  return absl::FailedPreconditionError(StrFormat(
      "products with the Hessian by finite differences are not symmetric (|u'Hv - v'Hu| "
      "= %.2g where ||Hv|| = %.2g): the loss is too rough for them, or its gradient by "
      "autograd is another one (detach, straight-through estimators, padding_idx, max_norm)%s",
      gap, scale, instead));
}

}  // namespace ptqwatch::internal
