#ifndef PTQWATCH_CURVATURE_H_
#define PTQWATCH_CURVATURE_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace ptqwatch {

/// The parameters that the Hessian is taken with respect to.
enum class CurvatureScope {
  kQuantizedWeights = 0,  ///< those that are quantized: what quantization error depends on
  kAllParameters = 1,
};
/// "quantized_weights", "all_parameters".
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
  /// (g(W + e v) - g(W - e v)) / 2e with e = 1.5e-3 ||W|| / ||v||. Two gradients a product, no more
  /// memory than a gradient, relative error about 1e-4 in float32; sees the kinks of ReLU, which
  /// the exact form does not.
  kFiniteDifference = 2,
};
/// "auto", "retained_graph", "recomputed_graph", "finite_difference".
std::string_view ToString(HessianMode mode);
std::optional<HessianMode> ParseHessianMode(std::string_view name);

/// What is measured of the loss surface at every snapshot, on the subject's curvature batches: top
/// eigenvalue and trace of the Hessian, and the second-order prediction of every quantizer's loss
/// change. Estimators stop at the precision asked for, within a cap.
struct CurvatureOptions {
  bool enabled = true;
  CurvatureScope scope = CurvatureScope::kQuantizedWeights;
  /// A mode that is asked for and does not work makes Create fail; with kAuto, where none works,
  /// curvature is left out and every report says why.
  HessianMode mode = HessianMode::kAuto;
  /// With kAuto, graphs that would take more than this are not retained.
  int64_t max_graph_bytes = int64_t{1} << 30;

  /// The eigenvalue's iteration stops at ||Hv - lambda v|| <= this * |lambda| ...
  double eigenvalue_residual_ratio = 0.02;
  /// ... or after this many products.
  int max_eigenvalue_products = 40;

  /// The trace's probe vectors stop when its standard error is this share of it (8 are always
  /// used) ...
  double trace_relative_stderr = 0.1;
  /// ... or after this many of them.
  int max_trace_probes = 32;
};

/// InvalidArgument naming the field and its value.
absl::Status Validate(const CurvatureOptions& options);

}  // namespace ptqwatch

#endif  // PTQWATCH_CURVATURE_H_
