#ifndef PTQWATCH_PROBES_ERROR_CURVATURE_H_
#define PTQWATCH_PROBES_ERROR_CURVATURE_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "curvature/hessian_operator.h"
#include "curvature/loss_direction.h"
#include "curvature/replica_surface.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// The loss along the error d = W_hat - W of every quantizer, in the parameters of a surface: first
/// predicted by gradient and Hessian, then, when the operator is gone (the weights may not change
/// under its graph), measured.
class ErrorCurvature {
 public:
  /// `quantized` has one list of weights a quantizer, empty where there are none. All arguments
  /// must outlive this.
  ErrorCurvature(ReplicaSurface& surface,
                 const std::vector<std::vector<Replica::Override>>& quantized);

  /// One product a quantizer; `top` is the top eigenvector. One whose product is not finite is left
  /// out. Errors as HessianOperator::Apply.
  absl::Status Predict(HessianOperator& hessian, const Vector& top,
                       const ExecutionContext& context);

  /// One mean loss for W, and one a quantizer and scale. What is not finite is left out.
  absl::Status Measure(const ExecutionContext& context);

  /// Writes what is known into the reports, one a quantizer. Nothing for a quantizer whose loss at
  /// W_hat is not finite.
  void Fill(std::vector<QuantizationReport>& reports) const;

 private:
  struct Result {
    std::optional<HessianDirection> direction;
    double alignment = 0;         // with the top eigenvector
    std::optional<double> delta;  // at W_hat
    std::vector<double> along;    // at the scales; may be NaN
  };

  ReplicaSurface& surface_;
  const std::vector<std::vector<Replica::Override>>& quantized_;
  std::vector<Result> results_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_ERROR_CURVATURE_H_
