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

/// Settings of the curvature engine; CurvatureOptions selects the measurements. A monitor uses the
/// defaults.
struct CurvatureEngineOptions {
  /// If an explicit mode does not work, Create fails; kAuto takes the first mode that works.
  HessianMode mode = HessianMode::kAuto;
  /// With kAuto, larger graphs are not retained.
  int64_t max_graph_bytes = int64_t{1} << 30;
  /// Limit for the vectors of the scope's size that a search for eigenvalues holds: 6 to 27 for
  /// Lanczos, or 3 to 5 for power iteration, which is used if the limit is below 6. Three are the
  /// minimum. Excludes the gradient, products and vectors of the previous search: about eight more.
  /// 0: the larger of 1 GiB and six vectors (plus one for each further eigenvalue).
  int64_t max_vector_bytes = 0;
  /// Batches with more sequences are cut into pieces of this many: the same loss, with smaller
  /// graphs. 0: batches are not cut.
  int64_t micro_batch = 0;
  int max_eigenvalue_products = 40;  ///< cap of each search for an eigenvalue
  int max_trace_probes = 32;         ///< cap of the trace's probe vectors; at least 8
};

/// InvalidArgument naming the field and its value.
PTQWATCH_EXPORT absl::Status Validate(const CurvatureEngineOptions& options);

/// An eigenvalue of the Hessian and its vector.
struct HessianEigenpair {
  double value = 0;  ///< nats per squared unit of weight
  /// No eigenvalue lies beyond this one, with a probability of 97.5 %: the search may have stopped
  /// at a neighbour of the largest (or smallest) one. Infinite if nothing is known.
  double bound = 0;
  double residual_ratio = 0;  ///< ||Hv - lambda v|| / |lambda|; 0 for a zero residual
  bool converged = false;     ///< the residual reached the requested size
  int products = 0;           ///< products with the Hessian in this search
  double seconds = 0;         ///< of the search
  EigenvalueMethod method = EigenvalueMethod::kLanczos;
  EigenvalueStart start = EigenvalueStart::kCold;
  at::Tensor vector;  ///< [dimension], of norm 1
};

struct HessianSpectrum {
  std::vector<HessianEigenpair> top;     ///< CurvatureOptions::top_eigenvalues, largest first
  std::vector<HessianEigenpair> bottom;  ///< the smallest one, if requested
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
  /// Standard error of the trace as an estimate for all data, from the difference between curvature
  /// batches. Absent if the probe vectors explain all of it, and with only one batch.
  std::optional<double> trace_batch_stderr;
  /// sum_l mean(w^2)_l tr(H_l) over the parameters l.
  double weighted_trace = 0;
  double weighted_trace_stderr = 0;
  std::vector<BlockTrace> parameters;  ///< their sum is the whole trace
  std::vector<BlockTrace> layers;      ///< parameters of one module together
  std::vector<BlockTrace> stacks;      ///< the experts of a mixture together (LayerQuantization)
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
  /// g_l'd_l and d_l'(Hd)_l / 2 of every parameter l, in the order of LossCurvature::parameters().
  /// Their sums are the two terms.
  std::vector<double> gradient_by_parameter;
  std::vector<double> curvature_by_parameter;

  /// L(W + scale d) - L(W), to second order.
  double Predict(double scale) const {
    return scale * gradient_term + scale * scale * curvature_term;
  }
};

/// The critical sharpness along a direction u = d / ||d|| (arXiv 2601.16979), from losses alone:
/// 2 / eta_c with the smallest rate eta_c at which gradient descent along the line, to
/// W - eta (g'u) u, no longer lowers the loss. On a quadratic it is u'Hu; along an eigenvector, the
/// eigenvalue.
struct CriticalSharpness {
  double sharpness = 0;      ///< nats per squared unit of weight
  double rate = 0;           ///< eta_c
  double scale = 0;          ///< the loss at W + scale d is that at W
  int loss_evaluations = 0;  ///< fewer than 10
};

/// Measures the curvature of a model's mean loss without a monitor: products with the Hessian, the
/// ends of its spectrum, its trace, and the loss along a direction. Works on a copy of the model
/// (the subject's replica) and the subject's curvature batches. Gives the same numbers as a monitor
/// with the same options.
///
/// @code
///   auto subject = ptqwatch::MakeModuleSubject(
///       model, {.replica = ..., .losses = ..., .probe = batches});
///   auto curvature = ptqwatch::LossCurvature::Create(
///       *subject, {.scope = ptqwatch::CurvatureScope::kAllParameters});
///   if (!curvature.ok()) return curvature.status();
///   auto spectrum = (*curvature)->Spectrum();
///   auto trace = (*curvature)->Trace();
/// @endcode
///
/// For one thread at a time. Nothing throws. Every call checks the context's cancellation and
/// deadline once per batch, and is deterministic given its seeds and the preceding calls. Searches
/// and traces reserve their vectors in the context's ByteBudget while they run. The mode is chosen
/// at Create and does not change.
///
/// Errors of the calls: Cancelled; DeadlineExceeded; DataLoss if the loss, the gradient or a
/// product is not finite; ResourceExhausted if memory runs out; FailedPrecondition if the Hessian
/// is zero; InvalidArgument for a vector of another shape.
class PTQWATCH_EXPORT LossCurvature {
 public:
  struct Parameter {
    std::string name;            ///< canonical
    std::vector<int64_t> sizes;  ///< its shape
    int64_t offset = 0;          ///< of its elements in a vector
    int64_t elements = 0;
  };

  /// Builds the subject's replica (a subject serves one call), copies the live weights into it, and
  /// determines how to compute products. `subject` must outlive the result.
  ///
  /// Cost: some forward passes, and about 15 gradients of one sequence, or of one batch if
  /// batches cannot be cut; twice the model's memory.
  /// Errors: InvalidArgument (options), FailedPrecondition (subject, closure, no mode works),
  /// ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<LossCurvature>> Create(
      Subject& subject, const CurvatureOptions& options = {},
      const CurvatureEngineOptions& engine = {}, const ExecutionContext& context = {});
  ~LossCurvature();
  LossCurvature(const LossCurvature&) = delete;
  LossCurvature& operator=(const LossCurvature&) = delete;

  /// Copies the live weights again. The next search starts from the eigenvectors found so far.
  absl::Status Reload();

  const std::vector<Parameter>& parameters() const;
  /// Elements of the parameters in scope: the size of a vector. Vectors have dtype float32, or
  /// float64 if a parameter does.
  int64_t dimension() const;
  /// The chosen mode.
  HessianMode mode() const;
  /// Why kAuto chose finite differences: the operator without a second derivative, or the memory
  /// that graphs would take. Empty otherwise.
  const std::string& mode_detail() const;

  /// Mean loss in nats.
  absl::StatusOr<double> Loss(const ExecutionContext& context = {});
  /// Gradient of the mean loss, [dimension].
  absl::StatusOr<at::Tensor> Gradient(const ExecutionContext& context = {});
  /// H v, [dimension]. Costs 2 to 4.5 gradients, see HessianMode.
  absl::StatusOr<at::Tensor> Multiply(const at::Tensor& v, const ExecutionContext& context = {});

  /// The ends of the spectrum, by Lanczos, or by power iteration if memory is short. Warm-started
  /// from the preceding call.
  absl::StatusOr<HessianSpectrum> Spectrum(const ExecutionContext& context = {});
  /// The trace (Hutchinson). Uses the last Spectrum on the same weights to reduce its variance.
  absl::StatusOr<HessianTrace> Trace(const ExecutionContext& context = {});
  /// The loss along `direction` [dimension], to second order: one product.
  absl::StatusOr<HessianDirection> Along(const at::Tensor& direction,
                                         const ExecutionContext& context = {});
  /// The mean loss at W + a direction for every a in `scales`, NaN if it is not finite. One
  /// evaluation each; a retained graph must be rebuilt afterwards.
  absl::StatusOr<std::vector<double>> LossesAlong(const at::Tensor& direction,
                                                  const std::vector<double>& scales,
                                                  const ExecutionContext& context = {});
  /// The critical sharpness along `direction` [dimension], which should be about as long as the
  /// steps of interest. Needs no gradient. A retained graph must be rebuilt afterwards.
  /// FailedPrecondition if the loss has no resolvable slope along it, or does not rise again as far
  /// as the message says.
  absl::StatusOr<CriticalSharpness> CriticalAlong(const at::Tensor& direction,
                                                  const ExecutionContext& context = {});

 private:
  class Impl;
  explicit LossCurvature(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_LOSS_CURVATURE_H_
