#ifndef PTQWATCH_CURVATURE_RANDOM_START_H_
#define PTQWATCH_CURVATURE_RANDOM_START_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "curvature/eigenpair.h"
#include "curvature/vector_space.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// Takes the orthonormal `basis` out of `vector` and returns the coefficients. Two passes, which
/// are enough (Kahan and Parlett) to stay orthogonal in float32.
std::vector<double> Orthogonalize(const VectorSpace& space, absl::Span<const Vector> basis,
                                  Vector& vector);

/// Where searches for an eigenvector begin: random unit vectors in the complement of `deflated`,
/// the same ones at every snapshot.
class RandomStart {
 public:
  /// Shares of the squared norm of a warm start. The random part finds what neither of the others
  /// has; it costs a product, because nearly all of it lies in the bulk of the spectrum.
  struct Shares {
    double scout = 0;
    double random = 0;
  };

  /// Arguments must outlive this.
  RandomStart(const VectorSpace& space, absl::Span<const Vector> deflated, Shares shares,
              const ExecutionContext& context)
      : seeds_(context.seeds), space_(space), deflated_(deflated), shares_(shares) {}

  /// A unit vector orthogonal to `basis` and what is deflated; undefined when none is found.
  Vector Next(absl::Span<const Vector> basis);

  /// The unit vector that a search begins at; undefined where the complement is empty. `warm`: the
  /// vector of `start` is in it; `biased`: that or the scout is, so that other eigenvectors have
  /// less of it than of a random vector. What is zero, not finite or of another space is not used.
  Vector First(const WarmStart& start, bool& warm, bool& biased);

 private:
  // x of norm 1 without what is deflated and without `other`; undefined where nothing is left of
  // it.
  Vector Usable(const Vector& x, absl::Span<const Vector> other) const;

  const SeedSource seeds_;
  const VectorSpace& space_;
  absl::Span<const Vector> deflated_;
  const Shares shares_;
  uint64_t drawn_ = 0;
};

/// A search for a residual of 5 % makes do with less certainty that nothing has overtaken.
inline bool IsCoarse(const EigenpairOptions& options) { return options.residual_ratio >= 0.05; }
inline RandomStart::Shares SharesFor(const EigenpairOptions& options) {
  return IsCoarse(options) ? RandomStart::Shares{0.1, 0.05} : RandomStart::Shares{0.1, 0.5};
}

/// A Hessian that gives nothing for so many random vectors is zero: a Status, never a silent 0.
inline constexpr int kZeroProducts = 3;
absl::Status ZeroHessianError();

/// Whether the vector that a warm search found has anything of the one it began at.
EigenvalueStart StartOf(const VectorSpace& space, const WarmStart& start, const Vector& found);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_RANDOM_START_H_
