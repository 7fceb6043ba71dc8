#ifndef PTQWATCH_CURVATURE_SPECTRUM_H_
#define PTQWATCH_CURVATURE_SPECTRUM_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "curvature/eigenpair.h"
#include "curvature/symmetric_operator.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/offline/loss_curvature.h"

namespace ptqwatch::internal {

/// Vectors by name: "top.0", "top.0.secondary", "bottom.0", ... Searches of one snapshot leave them
/// for those of the next.
using VectorMap = std::map<std::string, Vector>;

struct SpectrumOptions {
  int top = 1;                   ///< number of largest eigenvalues; at most the dimension
  bool bottom = false;           ///< also searches the smallest eigenvalue
  EigenpairOptions search = {};  ///< for each search; `search.end` is ignored
};

struct SpectrumSearch {
  HessianSpectrum spectrum;
  KrylovSpace krylov;  ///< from the search for the first eigenvalue
  VectorMap next;      ///< start vectors for the next searches
};

/// Finds the ends of H's spectrum, one eigenvalue after the other. Each search runs in the
/// complement of the vectors found before (deflation), so multiple eigenvalues are found with their
/// multiplicity. Every search starts from its vectors in `before`, if any. Errors as
/// ExtremeEigenpair; ResourceExhausted before the first product if memory is too small for all
/// searches.
absl::StatusOr<SpectrumSearch> FindSpectrum(SymmetricOperator& hessian, const VectorMap& before,
                                            const SpectrumOptions& options,
                                            const ExecutionContext& context);

/// Returns ResourceExhausted, with the bytes, if FindSpectrum would lack memory for vectors.
absl::Status CheckSpectrumMemory(const VectorSpace& space, const SpectrumOptions& options,
                                 const ExecutionContext& context);

/// `before` with the loss's gradient for the search for the top eigenvector.
VectorMap WithGradient(const VectorMap& before, const Vector& gradient);

/// The vectors of one search in a map, under "NAME", "NAME.secondary" and "NAME.gradient".
/// KeepForNext does not store the gradient.
WarmStart WarmStartFrom(const VectorMap& vectors, const std::string& name);
void KeepForNext(const WarmStart& found, const std::string& name, VectorMap& vectors);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_SPECTRUM_H_
