#ifndef PTQWATCH_PROBES_ERROR_MEASUREMENT_H_
#define PTQWATCH_PROBES_ERROR_MEASUREMENT_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "curvature/hessian_operator.h"
#include "curvature/loss_direction.h"
#include "curvature/replica_surface.h"
#include "probes/probe_result.h"
#include "ptqwatch/execution_context.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// The loss along the error d = W_hat - W of every quantizer, in the parameters of a surface: first
/// predicted by gradient and Hessian, then measured. Measure only once the operator is gone,
/// because the weights must not change under its graph.
class ErrorMeasurement {
 public:
  /// `watched` is the index of the watched quantizer, whose error is measured at more points.
  /// Surface and weights must outlive this.
  ErrorMeasurement(ReplicaSurface& surface, const QuantizedWeights& quantized,
                   std::optional<size_t> watched)
      : surface_(surface), quantized_(quantized), watched_(watched), found_(quantized.size()) {}

  /// One product per quantizer; `top` is the top eigenvector. Skips quantizers whose product is not
  /// finite. Errors as for HessianOperator::Apply.
  absl::Status Predict(HessianOperator& hessian, const Vector& top,
                       const ExecutionContext& context);

  /// One mean loss for W, and one per quantizer and scale, for the quantizers that Predict found.
  /// Skips losses that are not finite.
  absl::Status Measure(const ExecutionContext& context);

  /// The results in the order of the quantizers; nullopt for a quantizer without weights in the
  /// scope or with a loss at W_hat that is not finite.
  std::vector<std::optional<ErrorCurvature>> Take() const;

 private:
  struct Found {
    std::optional<HessianDirection> direction;
    double alignment = 0;          // with the top eigenvector
    std::vector<LossAlong> along;  // empty if the loss at W_hat is not finite
  };

  // The losses at the surface's current point, and their mean. DataLoss if the mean is not finite.
  struct Units {
    std::vector<double> sums;
    std::vector<double> weights;
    double mean = 0;
  };
  absl::StatusOr<Units> Evaluate(const ExecutionContext& context);
  // The loss at the current point compared with W; without numbers if it is not finite.
  absl::StatusOr<LossAlong> Compare(double scale, const Units& full,
                                    const ExecutionContext& context);

  ReplicaSurface& surface_;
  const QuantizedWeights& quantized_;
  const std::optional<size_t> watched_;
  std::vector<Found> found_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_ERROR_MEASUREMENT_H_
