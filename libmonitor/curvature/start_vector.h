#ifndef PTQWATCH_CURVATURE_START_VECTOR_H_
#define PTQWATCH_CURVATURE_START_VECTOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "curvature/eigenpair.h"
#include "curvature/vector_space.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// Where a search for an eigenvector begins.
struct StartVector {
  Vector vector;        ///< of norm 1; undefined where the complement of what is deflated is empty
  bool warm = false;    ///< has a part along the eigenvector of the search before
  bool biased = false;  ///< has a part that is not random: other eigenvectors are underrepresented
};

/// Shares of the squared norm of a warm start; the rest is the old eigenvector. The random part
/// finds what neither of the others has. It costs a product, because nearly all of it lies in the
/// bulk of the spectrum.
struct StartShares {
  double secondary = 0;
  double random = 0;
};

/// Start vectors in the complement of `deflated`. The random ones are functions of the context's
/// seeds: the same ones at every snapshot.
class StartVectors {
 public:
  /// Arguments must outlive this.
  StartVectors(const VectorSpace& space, absl::Span<const Vector> deflated, StartShares shares,
               const ExecutionContext& context)
      : seeds_(context.seeds), space_(space), deflated_(deflated), shares_(shares) {}

  /// The mixture of what `start` has with a random vector. Vectors that are zero, not finite or of
  /// another dimension are ignored.
  StartVector First(const WarmStart& start);

  /// A random unit vector orthogonal to `basis` and to what is deflated; undefined when none is
  /// found.
  Vector Next(absl::Span<const Vector> basis);

 private:
  // x of norm 1 without what is deflated and without `other`; undefined where nothing is left.
  Vector Usable(const Vector& x, absl::Span<const Vector> other) const;

  const SeedSource seeds_;
  const VectorSpace& space_;
  const absl::Span<const Vector> deflated_;
  const StartShares shares_;
  uint64_t drawn_ = 0;
};

/// A search for a residual of 5 % or more accepts a higher risk of missing a new largest
/// eigenvalue: its start has a smaller random part, and it may stop after fewer products.
inline bool IsCoarse(const EigenpairOptions& options) { return options.residual_ratio >= 0.05; }
inline StartShares SharesFor(const EigenpairOptions& options) {
  return IsCoarse(options) ? StartShares{0.1, 0.05} : StartShares{0.1, 0.5};
}

/// kWarm, or kRestarted where hardly anything of the old vector is left in the one found.
EigenvalueStart StartOf(const VectorSpace& space, const WarmStart& start, const Vector& found);

/// FailedPrecondition: the complement of the eigenvectors found so far is empty.
absl::Status NothingLeftError();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_START_VECTOR_H_
