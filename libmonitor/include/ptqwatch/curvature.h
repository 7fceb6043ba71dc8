#ifndef PTQWATCH_CURVATURE_H_
#define PTQWATCH_CURVATURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ptqwatch/report.h"

namespace ptqwatch {

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
