#ifndef PTQWATCH_CURVATURE_H_
#define PTQWATCH_CURVATURE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace ptqwatch {

/// The parameters that the Hessian is taken with respect to.
enum class CurvatureScope {
  kQuantizedWeights = 0,  ///< those that are quantized: what quantization error depends on
  /// All that are trained: frozen ones (requires_grad off in the live model, while it is on for
  /// others) are left out.
  kAllParameters = 1,
  /// Those whose names match CurvatureOptions::parameters: a layer, a block, a kind of weight.
  kNamedParameters = 2,
};
/// "quantized_weights", "all_parameters", "named_parameters".
std::string_view ToString(CurvatureScope scope);

/// How products of the Hessian H with a vector v are made.
enum class HessianMode {
  /// The first of those below that works for this model; found out at Create. Where memory runs
  /// out later, the next one from then on.
  kAuto = 0,
  /// Exact: the gradient's graph is built once a snapshot and differentiated for every product.
  /// About 2.2 gradients a product, and the memory of the graphs of all batches. Needs operators
  /// with a second derivative (fused attention has none).
  kRetainedGraph = 1,
  /// Exact: the same graph, built again for every product. 3 to 4.5 gradients a product, and the
  /// memory of one batch's graph.
  kRecomputedGraph = 3,
  /// (g(W + e v) - g(W - e v)) / 2e, e such that the gradient changes by about 1 % of itself. Two
  /// gradients a product, up to four where the step has to change; no more memory than a gradient,
  /// relative error about 2e-4 in float32; sees the kinks of ReLU, which the exact form does not.
  kFiniteDifference = 2,
  /// Not the Hessian but its Gauss-Newton part J'(d2 loss / d logits^2) J (Schraudolph 2002),
  /// without
  /// the second derivatives of the model itself: positive semidefinite for a convex loss of the
  /// logits. Needs a closure that gives LossValues::logits, and operators with a second derivative.
  /// Never chosen by kAuto. The graph of one batch, built for every product; about 4 gradients.
  kGaussNewton = 4,
};
/// "auto", "retained_graph", "recomputed_graph", "finite_difference", "gauss_newton".
std::string_view ToString(HessianMode mode);
std::optional<HessianMode> ParseHessianMode(std::string_view name);

/// How an eigenvalue was found.
enum class EigenvalueMethod {
  kLanczos = 0,
  kPowerIteration = 1,  ///< memory was short
};
/// "lanczos", "power_iteration".
std::string_view ToString(EigenvalueMethod method);

/// Where the search for an eigenvector began.
enum class EigenvalueStart {
  kCold = 0,       ///< at a random vector
  kWarm = 1,       ///< at the eigenvector of the snapshot before
  kRestarted = 2,  ///< there too, but that was stale: the random part of the start found this one
};
/// "cold", "warm", "restarted".
std::string_view ToString(EigenvalueStart start);

/// What is measured of the loss surface at every snapshot, on the subject's curvature batches: top
/// eigenvalue and trace of the Hessian, and the second-order prediction of every quantizer's loss
/// change. Estimators stop at the precision asked for, within a cap.
struct CurvatureOptions {
  bool enabled = true;
  CurvatureScope scope = CurvatureScope::kQuantizedWeights;
  /// With kNamedParameters: globs over canonical parameter names ('*' any run of characters, '?'
  /// one); a parameter that matches one of them is in the scope.
  std::vector<std::string> parameters = {};
  /// A mode that is asked for and does not work makes Create fail; with kAuto, where none works,
  /// curvature is left out and every report says why.
  HessianMode mode = HessianMode::kAuto;
  /// With kAuto, graphs that would take more than this are not retained.
  int64_t max_graph_bytes = int64_t{1} << 30;
  /// Most bytes of vectors of the scope's size that a search for eigenvalues holds: 6 to 27 of
  /// them; where fewer than six fit it is power iteration, and with less than three nothing is
  /// measured and the report says why. Gradient, products and what the snapshot before left come on
  /// top, about eight more. 0: a GiB, or six vectors (and one for each further eigenvalue) where
  /// that is more.
  int64_t max_vector_bytes = 0;
  /// Batches of more sequences are cut into pieces of this many, whose graphs are made one after
  /// the other: the same loss in less memory. 0: batches as they are given.
  int64_t micro_batch = 0;

  /// The eigenvalue's iteration stops at ||Hv - lambda v|| <= this * |lambda| ...
  double eigenvalue_residual_ratio = 0.02;
  /// ... or after this many products.
  int max_eigenvalue_products = 40;
  /// How many of the largest eigenvalues are looked for, one after the other in the complement of
  /// those found, each with a cap of its own.
  int top_eigenvalues = 1;
  /// The smallest (most negative) one too, which costs about as much as the largest.
  bool bottom_eigenvalue = false;

  /// The trace's probe vectors stop when its standard error is this share of it (8 are always
  /// used) ...
  double trace_relative_stderr = 0.1;
  /// ... or after this many of them.
  int max_trace_probes = 32;

  /// The loss is evaluated at W + a d for these a too, for every quantizer's error d.
  std::vector<double> error_scales = {0.5, 1.5};
};

/// InvalidArgument naming the field and its value.
absl::Status Validate(const CurvatureOptions& options);

}  // namespace ptqwatch

#endif  // PTQWATCH_CURVATURE_H_
