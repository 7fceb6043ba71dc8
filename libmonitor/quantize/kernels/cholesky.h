#ifndef PTQWATCH_QUANTIZE_KERNELS_CHOLESKY_H_
#define PTQWATCH_QUANTIZE_KERNELS_CHOLESKY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "quantize/kernels/aligned_buffer.h"

namespace ptqwatch::internal {

/// A symmetric matrix A: `values` with rows and columns permuted and the diagonal replaced.
/// A[i, j] = scale * values[order[i], order[j]] for i != j, A[i, i] = diagonal[order[i]].
struct PermutedSymmetric {
  const double* values = nullptr;  ///< [size, size] row-major; both triangles are read
  int64_t size = 0;
  const int64_t* order = nullptr;  ///< [size]
  double scale = 1;
  const double* diagonal = nullptr;  ///< [size], indexed like `values`
};

/// The upper triangular R with A = R R^T. R = J L J, where J reverses the order and L is the
/// Cholesky factor of J A J.
class UpperFactor {
 public:
  int64_t size() const { return size_; }
  /// R[i, j], i <= j. Slow, for tests only.
  double At(int64_t i, int64_t j) const;
  /// R[0 .. count - 1, j] for count <= j + 1.
  void CopyColumn(int64_t j, int64_t count, double* out) const;

 private:
  friend struct FactorStorage;
  int64_t size_ = 0;
  int64_t width_ = 0;            // rows of a panel
  std::vector<int64_t> panels_;  // start of each panel
  AlignedBuffer<double> lower_;  // L of the reversed A; panel p is [column][row p * width_ ..]
};

/// Factorises in float64. Gives the same bits for any number of threads. Every thread checks the
/// context every few milliseconds. Cost: size^3 / 3 FLOP; memory: 4 size^2 + 768 size bytes.
/// Errors: FailedPrecondition if a pivot is not positive and finite, Cancelled, DeadlineExceeded.
absl::StatusOr<UpperFactor> FactorizeUpper(const PermutedSymmetric& a,
                                           const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_CHOLESKY_H_
