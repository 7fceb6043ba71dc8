#ifndef PTQWATCH_OFFLINE_LOSS_CURVATURE_H_
#define PTQWATCH_OFFLINE_LOSS_CURVATURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/curvature.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch {

class Subject;

/// An eigenvalue of the Hessian and its vector.
struct HessianEigenpair {
  double value = 0;           ///< nats per squared unit of weight
  double residual_ratio = 0;  ///< ||Hv - lambda v|| / |lambda|
  bool converged = false;     ///< it is what was asked for
  int products = 0;           ///< with the Hessian, spent on it
  EigenvalueMethod method = EigenvalueMethod::kLanczos;
  EigenvalueStart start = EigenvalueStart::kCold;
  at::Tensor vector;  ///< [dimension], of norm 1
};

struct HessianSpectrum {
  std::vector<HessianEigenpair> top;     ///< CurvatureOptions::top_eigenvalues, largest first
  std::vector<HessianEigenpair> bottom;  ///< the smallest one, where it was asked for
  int products = 0;
  double seconds = 0;
};

/// The trace of one block of the Hessian.
struct BlockTrace {
  std::string name;
  double trace = 0;         ///< Hutchinson estimate
  double trace_stderr = 0;  ///< its standard error
};

struct HessianTrace {
  double trace = 0;
  double trace_stderr = 0;
  double trace_interval = 0;  ///< half the width of the 95 % interval (Student's t)
  /// sum_l mean(w^2)_l tr(H_l) over the parameters l.
  double weighted_trace = 0;
  double weighted_trace_stderr = 0;
  std::vector<BlockTrace> parameters;  ///< they sum up to the whole
  std::vector<BlockTrace> layers;      ///< parameters of one module together
  int probes = 0;
  bool converged = false;  ///< CurvatureOptions::trace_relative_stderr was reached
  int products = 0;
  double seconds = 0;
};

/// The second-order expansion of the loss along a direction d: L(W + a d) is about
/// L(W) + a gradient_term + a^2 curvature_term. Nats per token.
struct HessianDirection {
  double gradient_term = 0;   ///< g'd
  double curvature_term = 0;  ///< d'Hd / 2
  double curvature = 0;       ///< d'Hd / d'd
  /// g_l'd_l and d_l'(Hd)_l / 2 of every parameter l, in the order of parameters().
  std::vector<double> gradient_by_parameter;
  std::vector<double> curvature_by_parameter;
};

/// The curvature of a model's mean loss, without a monitor: products with its Hessian, the ends of
/// the spectrum, the trace, the loss along a direction. The numbers are those that a monitor with
/// the same options reports. Works on a copy of the model (the subject's replica), on the subject's
/// curvature batches.
///
///   auto subject = ptqwatch::MakeModuleSubject(model, {.replica = ..., .losses = ..., .probe =
///   batches}); auto context = ptqwatch::ExecutionContext(); auto curvature =
///   ptqwatch::LossCurvature::Create(
///       context, *subject, {.scope = ptqwatch::CurvatureScope::kAllParameters});
///   if (!curvature.ok()) return curvature.status();
///   auto spectrum = (*curvature)->Spectrum(context);
///   auto trace = (*curvature)->Trace(context);
///
/// One thread at a time. Every call looks at the context's cancellation and deadline once a batch,
/// and is deterministic given its seeds and the calls before it. Searches and traces reserve their
/// vectors in the context's ByteBudget while they run. The mode is chosen at Create and stays.
/// Nothing throws. Errors of the calls: Cancelled, DeadlineExceeded; DataLoss where the loss, the
/// gradient or a product is not finite; ResourceExhausted where memory did not suffice, with the
/// bytes; FailedPrecondition where the Hessian is zero; InvalidArgument for a vector of another
/// shape.
class LossCurvature {
 public:
  struct Parameter {
    std::string name;            ///< canonical
    std::vector<int64_t> sizes;  ///< its shape
    int64_t offset = 0;          ///< of its elements in a vector
    int64_t elements = 0;
  };

  /// Builds the subject's replica (a subject serves once), copies the live weights into it, and
  /// finds out how products can be made. Costs some forward passes and ten gradients of one batch;
  /// twice the model's memory. Errors: InvalidArgument (options), FailedPrecondition (subject,
  /// closure, no mode works). `subject` must outlive the result.
  static absl::StatusOr<std::unique_ptr<LossCurvature>> Create(
      Subject& subject, const CurvatureOptions& options = {}, const ExecutionContext& context = {});
  ~LossCurvature();
  LossCurvature(const LossCurvature&) = delete;
  LossCurvature& operator=(const LossCurvature&) = delete;

  /// Copies the live weights again. What was found so far is where the next search starts.
  absl::Status Reload();

  const std::vector<Parameter>& parameters() const;
  /// Elements of the parameters in scope: the size of a vector, whose dtype is float32, or float64
  /// where a parameter is.
  int64_t dimension() const;
  /// The one that was chosen.
  HessianMode mode() const;

  /// Mean loss in nats, and its gradient [dimension].
  absl::StatusOr<double> Loss(const ExecutionContext& context = {});
  absl::StatusOr<at::Tensor> Gradient(const ExecutionContext& context = {});
  /// H v, [dimension]. 2 to 4.5 gradients, see HessianMode.
  absl::StatusOr<at::Tensor> Multiply(const at::Tensor& v, const ExecutionContext& context = {});

  /// The ends of the spectrum (Lanczos, or power iteration where memory is short). Warm-started
  /// from the call before.
  absl::StatusOr<HessianSpectrum> Spectrum(const ExecutionContext& context = {});
  /// The trace (Hutchinson), with what the last Spectrum on the same weights found taken out of the
  /// variance.
  absl::StatusOr<HessianTrace> Trace(const ExecutionContext& context = {});
  /// The loss along `direction` [dimension], to second order: one product.
  absl::StatusOr<HessianDirection> Along(const at::Tensor& direction,
                                         const ExecutionContext& context = {});
  /// The mean loss at W + a direction for every a in `scales`: one evaluation each, NaN where it is
  /// not finite. A retained graph is built again afterwards.
  absl::StatusOr<std::vector<double>> LossesAlong(const at::Tensor& direction,
                                                  const std::vector<double>& scales,
                                                  const ExecutionContext& context = {});

 private:
  class Impl;
  explicit LossCurvature(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_LOSS_CURVATURE_H_
