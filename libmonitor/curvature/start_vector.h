#ifndef PTQWATCH_CURVATURE_START_VECTOR_H_
#define PTQWATCH_CURVATURE_START_VECTOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "curvature/eigenpair.h"
#include "curvature/vector_space.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// The start of a search for an eigenvector.
struct StartVector {
  Vector vector;      ///< of norm 1; undefined if the complement of the deflated vectors is empty
  bool warm = false;  ///< has a part along the previous search's eigenvector
  /// With a probability of 97.5 %, the wanted eigenvector has at least this share of the squared
  /// norm.
  double least_share = 0;
};

/// Shares of the squared norm of a warm start; the rest is the old eigenvector.
struct StartShares {
  double secondary = 0;  ///< of the secondary vector and the gradient together
  /// The random part finds eigenvectors that both others lack. It costs a product, because nearly
  /// all of it lies in the bulk of the spectrum.
  double random = 0;
};

/// Start vectors in the complement of `deflated`. The random vectors are functions of the context's
/// seeds, so they are the same at every snapshot.
class StartVectors {
 public:
  /// The arguments must outlive the StartVectors.
  StartVectors(const VectorSpace& space, absl::Span<const Vector> deflated,
               const ExecutionContext& context)
      : seeds_(context.seeds), space_(space), deflated_(deflated) {}

  /// A mixture of the vectors in `start` and a random vector. Vectors that are zero, not finite or
  /// of another dimension are ignored.
  StartVector First(const WarmStart& start, StartShares shares);

  /// A random unit vector orthogonal to `basis` and the deflated vectors; undefined if not found.
  Vector Next(absl::Span<const Vector> basis);

  /// StartVector::least_share of a vector with a random part of this share.
  double LeastShare(double random) const;

 private:
  // x without its parts along the deflated vectors and `other`, normalized; undefined if 0.
  Vector Usable(const Vector& x, absl::Span<const Vector> other) const;
  // The secondary vector and the gradient, without their components along `main` if it is defined.
  Vector Beside(const Vector& main, const WarmStart& start) const;

  const SeedSource seeds_;
  const VectorSpace& space_;
  const absl::Span<const Vector> deflated_;
  uint64_t drawn_ = 0;
};

/// A search for a residual of 5 % or more accepts a higher risk of missing a new largest
/// eigenvalue: its start has a smaller random part, and it may stop after fewer products.
inline bool IsCoarse(const EigenpairOptions& options) { return options.residual_ratio >= 0.05; }

/// The gradient shows eigenvectors that have overtaken the old one since the last search. Without a
/// gradient, finding them is left to the random part.
inline StartShares SharesFor(const WarmStart& start, const EigenpairOptions& options) {
  if (!start.gradient.defined()) return {0.1, IsCoarse(options) ? 0.05 : 0.5};
  return IsCoarse(options) ? StartShares{0.2, 0.05} : StartShares{0.3, 0.3};
}

/// kWarm, or kRestarted if the old vector and the one found are nearly orthogonal.
EigenvalueStart StartOf(const VectorSpace& space, const WarmStart& start, const Vector& found);

/// FailedPrecondition: the complement of the eigenvectors found so far is empty.
absl::Status NothingLeftError();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_START_VECTOR_H_
