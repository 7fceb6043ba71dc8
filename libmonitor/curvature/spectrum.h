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

/// Vectors by name: "top.0", "top.0.secondary", "bottom.0", ... What the searches of one snapshot
/// leave for those of the next.
using VectorMap = std::map<std::string, Vector>;

struct SpectrumOptions {
  int top = 1;                   ///< how many of the largest eigenvalues; at most the dimension
  bool bottom = false;           ///< the smallest one too
  EigenpairOptions search = {};  ///< of each; `search.end` is ignored
};

struct SpectrumSearch {
  HessianSpectrum spectrum;
  KrylovSpace krylov;  ///< of the search for the first eigenvalue
  VectorMap next;      ///< where the next searches start
};

/// The ends of H's spectrum, one eigenvalue after the other. Each is searched in the complement of
/// those found before it (deflation), so that multiple eigenvalues are found with their
/// multiplicity. Every search starts from its vectors in `before`, where there are any. Errors as
/// ExtremeEigenpair; ResourceExhausted before the first product where memory does not suffice for
/// all searches.
absl::StatusOr<SpectrumSearch> FindSpectrum(SymmetricOperator& hessian, const VectorMap& before,
                                            const SpectrumOptions& options,
                                            const ExecutionContext& context);

/// ResourceExhausted, with the bytes, where FindSpectrum would not have enough memory for vectors.
absl::Status CheckSpectrumMemory(const VectorSpace& space, const SpectrumOptions& options,
                                 const ExecutionContext& context);

/// `before` with the loss's gradient for the search for the top eigenvector.
VectorMap WithGradient(const VectorMap& before, const Vector& gradient);

/// The vectors of one search in a map, under "NAME", "NAME.secondary" and "NAME.gradient". The last
/// is not kept.
WarmStart WarmStartFrom(const VectorMap& vectors, const std::string& name);
void KeepForNext(const WarmStart& found, const std::string& name, VectorMap& vectors);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_SPECTRUM_H_
