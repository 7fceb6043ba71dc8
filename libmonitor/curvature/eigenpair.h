#ifndef PTQWATCH_CURVATURE_EIGENPAIR_H_
#define PTQWATCH_CURVATURE_EIGENPAIR_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "curvature/symmetric_operator.h"
#include "curvature/vector_space.h"
#include "ptqwatch/curvature.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

enum class SpectrumEnd { kTop, kBottom };

/// Fewer vectors than this, and a search is power iteration.
inline constexpr int64_t kLeastLanczosVectors = 6;

/// What a search leaves for the next one, on a matrix not far from its own.
struct WarmStart {
  Vector vector;  ///< the eigenvector that was found; undefined: a cold start
  /// What the search saw beside it: the start without the eigenvector, filtered so that the
  /// eigenvectors next to the wanted end come out. An eigenvalue that grows past the one that is
  /// followed gathers here from search to search. May be undefined.
  Vector scout;
};

struct EigenpairOptions {
  SpectrumEnd end = SpectrumEnd::kTop;
  double residual_ratio = 0.02;  ///< stops at ||Hv - lambda v|| <= this * |lambda|
  int max_products = 40;
  /// Most bytes of vectors. As many as help (24) are kept, as far as this and the context's
  /// ByteBudget allow.
  int64_t max_bytes = int64_t{1} << 30;
};

struct Eigenpair {
  double value = 0;
  /// ||Hv - value v|| / |value|; 0 for a zero residual, also at value 0.
  double residual_ratio = 0;
  bool converged = false;
  int products = 0;
  double seconds = 0;
  EigenvalueMethod method = EigenvalueMethod::kLanczos;
  EigenvalueStart start = EigenvalueStart::kCold;
  Vector vector;  ///< of norm 1
  Vector scout;   ///< see WarmStart; of norm 1 or undefined

  WarmStart next() const { return {vector, scout}; }
};

/// What Lanczos knows of H: orthonormal vectors Q and a small symmetric matrix M with
/// Q M Q' = H P + P H - P H P, where P projects on all vectors but the last one (on all of them
/// where the space is invariant).
struct KrylovSpace {
  std::vector<Vector> basis;
  std::vector<double> matrix;  ///< row-major, basis.size() squared
  size_t projected = 0;        ///< how many vectors P projects on
  /// The median of the eigenvalues of P H P: what the rest of the spectrum is likely to be near.
  double level = 0;
};

/// The largest (or smallest, signed) eigenvalue of a symmetric H and its vector, in the complement
/// of `deflated`, orthonormal vectors (eigenvectors of H that were found before).
///
/// Lanczos with full reorthogonalisation and thick restarts (Golub and Van Loan, Matrix
/// Computations, section 10.3; Wu and Simon 2000), where the budget has room for a basis of three
/// vectors; else power iteration (PowerEigenpair), which needs three in all. A cold start is a
/// random vector of `context.seeds`, the same one every time; a warm one mixes the vector and the
/// scout of the search before with it; a scout alone (the gradient is a good one) makes a better
/// cold start. A warm start is taken to have converged only where an eigenvalue a tenth beyond the
/// one found would have shown, at the latest after 6 products; where a residual of 5 % will do
/// after 4, at the risk that one which has just overtaken the other is seen a search or two later.
/// Where little of the old vector is left in the one found, it was stale and `start` says so. An
/// invariant space is left with the next random vector until basis or products are used up. After k
/// products from a random start the relative error is O((ln n / k)^2) (Kuczynski and Wozniakowski
/// 1992).
///
/// `krylov`, unless null, receives what was learnt of H on the way. Errors: as
/// SymmetricOperator::Apply; ResourceExhausted, with the bytes, where three vectors do not fit;
/// FailedPrecondition where every product is zero.
absl::StatusOr<Eigenpair> ExtremeEigenpair(SymmetricOperator& hessian, const WarmStart& start,
                                           const EigenpairOptions& options,
                                           absl::Span<const Vector> deflated = {},
                                           KrylovSpace* krylov = nullptr,
                                           const ExecutionContext& context = {});

/// The same by power iteration on H, and, where that finds the other end (it converges to the
/// largest |lambda|), on H minus that eigenvalue. Three vectors; converges much more slowly.
absl::StatusOr<Eigenpair> PowerEigenpair(SymmetricOperator& hessian, const WarmStart& start,
                                         const EigenpairOptions& options,
                                         absl::Span<const Vector> deflated = {},
                                         KrylovSpace* krylov = nullptr,
                                         const ExecutionContext& context = {});

/// Marks a ResourceExhausted status as one of the vectors' budget, which another way of making
/// products would not help.
absl::Status OfVectorBudget(absl::Status status);
bool IsOfVectorBudget(const absl::Status& status);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_EIGENPAIR_H_
