#include "curvature/hessian_operator.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "c10/core/AutogradState.h"
#include "curvature/differentiate.h"
#include "curvature/gauss_newton_operator.h"

namespace ptqwatch::internal {
namespace {

// The step of a central difference is chosen so that the gradient changes by this share of itself
// from one side to the other: less, and its rounding shows; more, and so does its curvature. No
// multiple of ||W|| does for all directions: on a trained GPT 1.5e-3 is right for a random one, and
// 31 % off along the top eigenvector, where 2e-5 is right.
constexpr double kGradientChange = 0.01;
// In multiples of ||W||. The largest is tried first: it is what random directions take.
constexpr double kLargestStep = 3e-3;
constexpr double kSmallestStep = 1e-5;
// A step is kept where the one wanted is within this factor of it, and after so many changes.
constexpr double kCloseEnough = 2;
constexpr int kMostSteps = 3;

// The backward pass stays on the calling thread while this lives.
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

// Differentiates the gradient's graph, kept for all batches or built again for each product.
class GraphOperator final : public HessianOperator {
 public:
  GraphOperator(LossSurface* surface, bool keep)
      : HessianOperator(surface), leaves_(LeafTensors(*surface)), keep_(keep) {}

  absl::Status Build(const ExecutionContext& context) {
    gradient_ = space().Zero();
    generation_ = surface_->generation();
    if (!keep_) return Differentiate(*surface_, loss_, gradient_, context);
    for (size_t i = 0; i < surface_->batches(); ++i) {
      if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
      absl::StatusOr<variable_list> gradients = GradientWithGraph(i, loss_);
      if (!gradients.ok()) return gradients.status();
      Accumulate(*surface_, *gradients, gradient_);
      graphs_.push_back(*std::move(gradients));
    }
    return CheckGradient(space(), gradient_);
  }

 private:
  absl::Status Product(const Vector& v, Vector& hv, const ExecutionContext& context) override {
    // The parameters are views of one buffer, for which autograd's own check of versions is off: a
    // product after a write would be wrong without a word.
    if (surface_->generation() != generation_) {
      return absl::FailedPreconditionError(
          "the weights were written to between a gradient and a product with its derivative");
    }
    hv.elements.zero_();
    for (size_t i = 0; i < surface_->batches(); ++i) {
      if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
      absl::Status status;
      if (keep_) {
        status = AddProduct(graphs_[i], v, hv);
      } else {
        double loss = 0;
        absl::StatusOr<variable_list> gradients = GradientWithGraph(i, loss);
        status = gradients.ok() ? AddProduct(*gradients, v, hv) : gradients.status();
      }
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // By leaf, with the graph to the leaves. Adds the batch's loss to `loss`.
  absl::StatusOr<variable_list> GradientWithGraph(size_t batch, double& loss) {
    absl::StatusOr<at::Tensor> value = surface_->Loss(batch, /*with_graph=*/true);
    if (!value.ok()) return value.status();
    absl::StatusOr<double> finite = FiniteLoss(*value);
    if (!finite.ok()) return finite.status();
    loss += *finite;
    variable_list gradients;
    absl::Status status = Caught("the loss cannot be differentiated", [&] {
      at::AutoGradMode with_graph(true);
      gradients = torch::autograd::grad({*value}, leaves_, {}, /*retain_graph=*/true,
                                        /*create_graph=*/true, /*allow_unused=*/true);
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
    return gradients;
  }

  // hv += the derivative of gradients along v.
  absl::Status AddProduct(const variable_list& gradients, const Vector& v, Vector& hv) {
    variable_list outputs;
    variable_list factors;
    for (size_t i = 0; i < gradients.size(); ++i) {
      // A gradient without a graph is constant: it adds nothing to the product.
      if (!gradients[i].defined() || !gradients[i].requires_grad()) continue;
      outputs.push_back(gradients[i]);
      factors.push_back(space().View(v, surface_->leaves()[i].part).to(gradients[i].scalar_type()));
    }
    if (outputs.empty()) return absl::OkStatus();
    return Caught("the gradient cannot be differentiated", [&] {
      Accumulate(*surface_,
                 torch::autograd::grad(outputs, leaves_, factors, /*retain_graph=*/keep_,
                                       /*create_graph=*/false, /*allow_unused=*/true),
                 hv);
      return absl::OkStatus();
    });
  }

  std::vector<at::Tensor> leaves_;
  std::vector<variable_list> graphs_;  // one a batch where they are kept
  uint64_t generation_ = 0;
  const bool keep_;
};

class FiniteDifferenceOperator final : public HessianOperator {
 public:
  explicit FiniteDifferenceOperator(LossSurface* surface) : HessianOperator(surface) {}

  absl::Status Build(const ExecutionContext& context) {
    gradient_ = space().Zero();
    ahead_ = space().Zero();
    const double norm = surface_->WeightNorm();
    weight_norm_ = norm > 0 ? norm : 1;
    step_ = kLargestStep * weight_norm_;
    absl::Status status = Differentiate(*surface_, loss_, gradient_, context);
    generation_ = surface_->generation();
    return status;
  }

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
    if (surface_->generation() != generation_) {
      return absl::FailedPreconditionError(
          "the weights were written to between products of one Hessian");
    }
    const double norm = space().Norm(v);
    hv.elements.zero_();
    if (norm == 0) return absl::OkStatus();
    absl::Status status = StepAhead(v, norm, hv, context);
    const double e = step_ / norm;
    if (status.ok()) status = GradientAt(v, -e, hv, context);
    // Also after a failure: the surface is handed back at W.
    if (absl::Status back = surface_->MoveTo(nullptr, 0); status.ok()) status = back;
    generation_ = surface_->generation();
    if (!status.ok()) return status;
    space().Scale(-1 / (2 * e), hv);
    space().Axpy(1 / (2 * e), ahead_, hv);
    return absl::OkStatus();
  }

  // ahead_ = g(W + e v) with e = step_ / norm, a step that suits v. Begins with that of the product
  // before, which mostly does.
  absl::Status StepAhead(const Vector& v, double norm, Vector& scratch,
                         const ExecutionContext& context) {
    for (int steps = 1;; ++steps) {
      absl::Status status = GradientAt(v, step_ / norm, ahead_, context);
      if (!status.ok() || keep_step_ || steps == kMostSteps) return status;
      scratch.elements.copy_(ahead_.elements);
      space().Axpy(-1, gradient_, scratch);
      const double change = 2 * space().Norm(scratch);
      const double aim = kGradientChange * space().Norm(gradient_);
      const double wanted = std::clamp(change > 0 ? step_ * aim / change : HUGE_VAL,
                                       kSmallestStep * weight_norm_, kLargestStep * weight_norm_);
      if (wanted <= kCloseEnough * step_ && step_ <= kCloseEnough * wanted) return status;
      step_ = wanted;
    }
  }

  absl::Status GradientAt(const Vector& v, double e, Vector& gradient,
                          const ExecutionContext& context) {
    if (absl::Status status = surface_->MoveTo(&v, e); !status.ok()) return status;
    double loss = 0;
    return Differentiate(*surface_, loss, gradient, context);
  }

  Vector ahead_;
  double weight_norm_ = 0;
  double step_ = 0;  // for a direction of norm 1
  bool keep_step_ = false;
  uint64_t generation_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HessianOperator>> HessianOperator::Create(
    LossSurface* surface, HessianMode mode, const ExecutionContext& context) {
  SingleThreadedBackward single_threaded;
  if (surface->space().dimension() == 0) {
    return absl::FailedPreconditionError("no parameter is in the scope of the curvature");
  }
  if (mode == HessianMode::kGaussNewton) return CreateGaussNewtonOperator(surface, context);
  if (mode != HessianMode::kFiniteDifference) {
    auto exact = std::make_unique<GraphOperator>(surface, mode == HessianMode::kRetainedGraph);
    if (absl::Status status = exact->Build(context); !status.ok()) return status;
    return exact;
  }
  auto difference = std::make_unique<FiniteDifferenceOperator>(surface);
  if (absl::Status status = difference->Build(context); !status.ok()) return status;
  return difference;
}

absl::Status HessianOperator::Apply(const Vector& v, Vector& hv, const ExecutionContext& context) {
  SingleThreadedBackward single_threaded;
  ++products_;
  if (absl::Status status = Product(v, hv, context); !status.ok()) return status;
  if (!space().IsFinite(hv)) {
    return absl::DataLossError("a product with the Hessian is not finite");
  }
  return absl::OkStatus();
}

absl::StatusOr<double> HessianOperator::StepCheck(const Vector&, const Vector&,
                                                  const ExecutionContext&) {
  return 0.0;
}

}  // namespace ptqwatch::internal
