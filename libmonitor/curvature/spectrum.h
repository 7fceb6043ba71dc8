#ifndef PTQWATCH_CURVATURE_SPECTRUM_H_
#define PTQWATCH_CURVATURE_SPECTRUM_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "curvature/eigenpair.h"
#include "curvature/symmetric_operator.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// Vectors by what they are: "top.0", "top.0.scout", "bottom.0", ... What a snapshot's searches
/// leave for those of the next.
using VectorMap = std::map<std::string, Vector>;

struct SpectrumOptions {
  int top = 1;                   ///< how many of the largest eigenvalues; at most the dimension
  bool bottom = false;           ///< the smallest one too
  EigenpairOptions search = {};  ///< of each; its end is not looked at
};

struct Spectrum {
  std::vector<Eigenpair> top;     ///< largest first
  std::vector<Eigenpair> bottom;  ///< none or one
  KrylovSpace krylov;             ///< of the search for the first one
  int products = 0;
  double seconds = 0;
};

/// The ends of H's spectrum, one eigenvalue after the other: each in the complement of those found
/// before it (deflation), so that multiple ones are found as often as they are there. Every search
/// starts from its vectors in `before` where they are (ExtremeEigenpair); `after` receives those
/// for the next time and may be the same map. Errors as ExtremeEigenpair.
absl::StatusOr<Spectrum> FindSpectrum(SymmetricOperator& hessian, const VectorMap& before,
                                      const SpectrumOptions& options, VectorMap& after,
                                      const ExecutionContext& context);

/// `before` with the loss's gradient in the scout of the search for the top eigenvector: it lies
/// mostly along the top eigenvectors (Gur-Ari, Roberts and Dyer 2018), new ones too.
VectorMap WithGradient(const VectorSpace& space, const VectorMap& before, const Vector& gradient);

/// The vectors of one search in a map, under "NAME" and "NAME.scout".
WarmStart WarmStartFrom(const VectorMap& vectors, const std::string& name);
void KeepForNext(const WarmStart& found, const std::string& name, VectorMap& vectors);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_SPECTRUM_H_
