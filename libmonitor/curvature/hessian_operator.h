#ifndef PTQWATCH_CURVATURE_HESSIAN_OPERATOR_H_
#define PTQWATCH_CURVATURE_HESSIAN_OPERATOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "curvature/loss_surface.h"
#include "curvature/symmetric_operator.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// If a finite difference's StepCheck exceeds this, its product does not count as a derivative.
inline constexpr double kMaxStepCheck = 0.1;

/// Products with the Hessian of a LossSurface at its point W on creation. Not thread-safe.
class HessianOperator : public SymmetricOperator {
 public:
  /// `mode` must not be kAuto. `surface` must outlive the operator, and only the operator may move
  /// it. Costs one gradient, with its graph if retained. With `rough_differences`, ApplyRoughly of
  /// a graph is a difference too (see HessianChoice).
  ///
  /// Errors: FailedPrecondition if the loss cannot be differentiated, ResourceExhausted if memory
  /// runs out, DataLoss if loss or gradient is not finite, Cancelled or DeadlineExceeded from the
  /// context, which is checked once per batch.
  static absl::StatusOr<std::unique_ptr<HessianOperator>> Create(LossSurface* surface,
                                                                 HessianMode mode,
                                                                 const ExecutionContext& context,
                                                                 bool rough_differences = false);

  /// hv = H v. Errors as Create, and FailedPrecondition if the parameters were written to since.
  absl::Status Apply(const Vector& v, Vector& hv, const ExecutionContext& context) override;
  /// Takes a finite difference on one side, unless products are exact and `rough_differences` was
  /// not given: one gradient, with a relative error of about 2e-3 in float32.
  absl::Status ApplyRoughly(const Vector& v, Vector& hv, const ExecutionContext& context) override;

  /// The batches' shares of the data.
  std::vector<double> shares() const override;
  /// Costs one inner product per batch more than Apply.
  absl::Status ApplyByShare(const Vector& v, Vector& hv, std::vector<double>& along,
                            const ExecutionContext& context) override;

  /// False if products are finite differences.
  virtual bool exact() const { return true; }
  /// How much a product depends on the step of a finite difference: ||Hv(step) - Hv(step / 2)|| /
  /// ||Hv(step / 2)||. Costs one product. 0 for exact operators.
  virtual absl::StatusOr<double> StepCheck(const Vector& v, const Vector& hv,
                                           const ExecutionContext& context);

  const VectorSpace& space() const override { return surface_->space(); }
  double loss() const { return loss_; }
  const Vector& gradient() const { return gradient_; }
  int64_t products() const { return products_; }

 protected:
  explicit HessianOperator(LossSurface* surface) : surface_(surface) {}
  virtual absl::Status Product(const Vector& v, Vector& hv, const ExecutionContext& context) = 0;
  /// Product calls this after every batch, with v and the sum so far.
  void AddBatch(const Vector& v, const Vector& sum) {
    if (along_ != nullptr) along_->push_back(space().Dot(v, sum));
  }
  virtual absl::Status RoughProduct(const Vector& v, Vector& hv, const ExecutionContext& context) {
    return Product(v, hv, context);
  }

  LossSurface* surface_;
  double loss_ = 0;
  Vector gradient_;
  int64_t products_ = 0;
  std::vector<double>* along_ = nullptr;  // AddBatch appends v'(H_0 + ... + H_b)v
};

/// Are products along random vectors derivatives? Returns the StepCheck of one: 0 for an exact
/// operator, which costs nothing. FailedPrecondition if it exceeds kMaxStepCheck, or if products of
/// finite differences are not symmetric to the same accuracy; its message ends with `mode_detail`,
/// why there are no exact products, if there is one. Costs three of them.
absl::StatusOr<double> CheckDifference(HessianOperator& hessian, std::string_view mode_detail,
                                       const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_HESSIAN_OPERATOR_H_
