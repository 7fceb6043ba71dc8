#ifndef PTQWATCH_OFFLINE_LOSS_CURVATURE_H_
#define PTQWATCH_OFFLINE_LOSS_CURVATURE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "ptqwatch/report.h"

namespace ptqwatch {

class Subject;

/// How the curvature engine works; what it measures is in CurvatureOptions. A monitor uses the
/// defaults.
struct CurvatureEngineOptions {
  /// A mode that is asked for and does not work makes Create fail; kAuto takes the first that
  /// works.
  HessianMode mode = HessianMode::kAuto;
  /// With kAuto, graphs that would take more than this are not retained.
  int64_t max_graph_bytes = int64_t{1} << 30;
  /// Limit for the vectors of the scope's size that a search for eigenvalues holds: 6 to 27 for
  /// Lanczos, 3 to 5 for power iteration, which takes over below that. Three are the minimum. The
  /// gradient, products and vectors of the previous search are not included: about eight more.
  /// 0: a GiB, or six vectors (and one for each further eigenvalue) where that is more.
  int64_t max_vector_bytes = 0;
  /// Batches with more sequences are cut into pieces of this many: the same loss, with graphs that
  /// take less memory. 0: batches stay as they are.
  int64_t micro_batch = 0;
  int max_eigenvalue_products = 40;  ///< cap of each search for an eigenvalue
  int max_trace_probes = 32;         ///< cap of the trace's probe vectors; at least 8
};

/// InvalidArgument naming the field and its value.
PTQWATCH_EXPORT absl::Status Validate(const CurvatureEngineOptions& options);

/// An eigenvalue of the Hessian and its vector.
struct HessianEigenpair {
  double value = 0;           ///< nats per squared unit of weight
  double residual_ratio = 0;  ///< ||Hv - lambda v|| / |lambda|; 0 for a zero residual
  bool converged = false;     ///< the residual is as small as asked for
  int products = 0;           ///< with the Hessian, used by the search
  double seconds = 0;         ///< of the search
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

/// The trace of one diagonal block of the Hessian.
struct BlockTrace {
  std::string name;
  double trace = 0;         ///< Hutchinson estimate
  double trace_stderr = 0;  ///< its standard error
};

struct HessianTrace {
  double trace = 0;
  double trace_stderr = 0;
  double trace_interval = 0;  ///< half the width of the 95 % interval (Student's t)
  /// Standard error of the trace as an estimate for all data, from how the curvature batches
  /// differ. 0 where they differ by no more than the probe vectors explain; nothing where there is
  /// only one.
  std::optional<double> trace_batch_stderr;
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
  double squared_norm = 0;    ///< d'd
  double curvature = 0;       ///< d'Hd / d'd
  /// g_l'd_l and d_l'(Hd)_l / 2 of every parameter l, in the order of LossCurvature::parameters();
  /// they sum up to the terms.
  std::vector<double> gradient_by_parameter;
  std::vector<double> curvature_by_parameter;

  /// L(W + scale d) - L(W), to second order.
  double Predict(double scale) const {
    return scale * gradient_term + scale * scale * curvature_term;
  }
};

/// The curvature of a model's mean loss, without a monitor: products with the Hessian, the ends of
/// its spectrum, its trace, the loss along a direction. Works on a copy of the model (the subject's
/// replica) and the subject's curvature batches. The numbers are those that a monitor with the same
/// options reports.
///
/// \code
///   auto subject = ptqwatch::MakeModuleSubject(
///       model, {.replica = ..., .losses = ..., .probe = batches});
///   auto curvature = ptqwatch::LossCurvature::Create(
///       *subject, {.scope = ptqwatch::CurvatureScope::kAllParameters});
///   if (!curvature.ok()) return curvature.status();
///   auto spectrum = (*curvature)->Spectrum();
///   auto trace = (*curvature)->Trace();
/// \endcode
///
/// One thread at a time. Nothing throws. Every call checks the context's cancellation and deadline
/// once a batch, and is deterministic given its seeds and the calls before it. Searches and traces
/// reserve their vectors in the context's ByteBudget while they run. The mode is chosen at Create
/// and stays.
///
/// Errors of the calls: Cancelled, DeadlineExceeded; DataLoss where the loss, the gradient or a
/// product is not finite; ResourceExhausted where memory did not suffice; FailedPrecondition where
/// the Hessian is zero; InvalidArgument for a vector of another shape.
class PTQWATCH_EXPORT LossCurvature {
 public:
  struct Parameter {
    std::string name;            ///< canonical
    std::vector<int64_t> sizes;  ///< its shape
    int64_t offset = 0;          ///< of its elements in a vector
    int64_t elements = 0;
  };

  /// Builds the subject's replica (a subject serves once), copies the live weights into it, and
  /// finds out how products can be made. `subject` must outlive the result.
  ///
  /// Cost: some forward passes and about ten gradients of one batch; twice the model's memory.
  /// Errors: InvalidArgument (options), FailedPrecondition (subject, closure, no mode works),
  /// ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<LossCurvature>> Create(
      Subject& subject, const CurvatureOptions& options = {},
      const CurvatureEngineOptions& engine = {}, const ExecutionContext& context = {});
  ~LossCurvature();
  LossCurvature(const LossCurvature&) = delete;
  LossCurvature& operator=(const LossCurvature&) = delete;

  /// Copies the live weights again. The next search starts from what was found so far.
  absl::Status Reload();

  const std::vector<Parameter>& parameters() const;
  /// Elements of the parameters in scope: the size of a vector. The dtype of a vector is float32,
  /// or float64 where a parameter is.
  int64_t dimension() const;
  /// The mode that was chosen.
  HessianMode mode() const;

  /// Mean loss in nats.
  absl::StatusOr<double> Loss(const ExecutionContext& context = {});
  /// Gradient of the mean loss, [dimension].
  absl::StatusOr<at::Tensor> Gradient(const ExecutionContext& context = {});
  /// H v, [dimension]. 2 to 4.5 gradients, see HessianMode.
  absl::StatusOr<at::Tensor> Multiply(const at::Tensor& v, const ExecutionContext& context = {});

  /// The ends of the spectrum, by Lanczos, or power iteration where memory is short. Warm-started
  /// from the call before.
  absl::StatusOr<HessianSpectrum> Spectrum(const ExecutionContext& context = {});
  /// The trace (Hutchinson). What the last Spectrum on the same weights found reduces its variance.
  absl::StatusOr<HessianTrace> Trace(const ExecutionContext& context = {});
  /// The loss along `direction` [dimension], to second order: one product.
  absl::StatusOr<HessianDirection> Along(const at::Tensor& direction,
                                         const ExecutionContext& context = {});
  /// The mean loss at W + a direction for every a in `scales`, NaN where it is not finite. One
  /// evaluation each; a retained graph has to be rebuilt afterwards.
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
