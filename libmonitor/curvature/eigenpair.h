#ifndef PTQWATCH_CURVATURE_EIGENPAIR_H_
#define PTQWATCH_CURVATURE_EIGENPAIR_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "curvature/symmetric_operator.h"
#include "curvature/vector_space.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/offline/loss_curvature.h"

namespace ptqwatch::internal {

enum class SpectrumEnd { kTop, kBottom };

/// State from one search for the next, on a similar matrix.
struct WarmStart {
  Vector vector;  ///< the eigenvector found; undefined for a cold start
  /// Secondary start vector: the start of the search without its component along the eigenvector
  /// found, filtered towards the wanted end of the spectrum. If another eigenvalue grows past the
  /// tracked one, its eigenvector accumulates here from search to search. May be undefined.
  Vector secondary;
  /// The loss's gradient at the point of the matrix; may be undefined. It lies mostly along the top
  /// eigenvectors (Gur-Ari, Roberts and Dyer 2018), including new ones. Set by callers.
  Vector gradient = {};
};

struct EigenpairOptions {
  SpectrumEnd end = SpectrumEnd::kTop;
  double residual_ratio = 0.02;  ///< stops at ||Hv - lambda v|| <= this * |lambda|
  int max_products = 40;
  /// Limit for the bytes of vectors. The search keeps as many as are useful (24 and three more), if
  /// this limit and the context's ByteBudget allow.
  int64_t max_bytes = int64_t{1} << 30;
};

/// The part of H that a Lanczos search found: orthonormal vectors Q and a small symmetric matrix M
/// with Q M Q' = H P + P H - P H P, where P projects on all vectors but the last one (on all of
/// them if the space is invariant).
struct KrylovSpace {
  std::vector<Vector> basis;
  std::vector<double> matrix;  ///< row-major, basis.size() squared
  size_t projected = 0;        ///< number of vectors that P projects on
  /// The median of the eigenvalues of P H P, an estimate of the rest of the spectrum.
  double level = 0;
};

struct EigenpairSearch {
  HessianEigenpair pair;
  WarmStart next;      ///< for the next search; its `vector` is the pair's
  KrylovSpace krylov;  ///< empty if vectors were deflated
};

/// Finds the largest (or smallest, signed) eigenvalue of a symmetric H and its vector, in the
/// complement of `deflated`: orthonormal eigenvectors of H that were found before.
///
/// Lanczos with full reorthogonalisation and thick restarts (Golub and Van Loan, Matrix
/// Computations, section 10.3; Wu and Simon 2000).
///
/// A cold start is a random vector from `context.seeds`, the same every time; the gradient improves
/// it. A warm start is a mixture of the vector and the secondary vector of an earlier search, the
/// gradient and a random vector. `pair.start` is kRestarted if the old vector and the one found are
/// nearly orthogonal.
///
/// Memory: MinSearchVectors to 27 vectors. Errors: as SymmetricOperator::Apply; ResourceExhausted,
/// with the bytes, if fewer fit; FailedPrecondition if every product is zero.
absl::StatusOr<EigenpairSearch> ExtremeEigenpair(SymmetricOperator& hessian, const WarmStart& start,
                                                 const EigenpairOptions& options,
                                                 absl::Span<const Vector> deflated = {},
                                                 const ExecutionContext& context = {});

/// How many vectors a search needs room for: 6, or fewer in a space of one or two dimensions.
int64_t MinSearchVectors(const VectorSpace& space);

/// Returns ResourceExhausted, with the bytes, if `vectors` vectors take more than `max_bytes` or
/// than the rest of the context's ByteBudget.
absl::Status CheckVectorMemory(const VectorSpace& space, int64_t vectors, int64_t max_bytes,
                               const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_EIGENPAIR_H_
