#ifndef PTQWATCH_CUDA_CHOLESKY_STEPS_H_
#define PTQWATCH_CUDA_CHOLESKY_STEPS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "cuda/compute_device.h"

namespace ptqwatch::internal {

/// Factorises symmetric [size, size] float64 matrices, given by their upper triangles
/// (column-major), into U^T U. The strict lower triangles get undefined contents.
///
/// In two levels of blocks: before 512 rows are factorised, one product subtracts from them what
/// all earlier rows contribute, so that products are large enough to fill a device; inside, the
/// same with 128 rows. Only the diagonal blocks of 128 do not go through products. Cost: size^3 / 3
/// multiply-adds, and three launches per 128 rows.
class Cholesky {
 public:
  /// Takes memory for matrices of this size.
  absl::Status Take(Arena& arena, int64_t size);
  /// Sets `info` on the device, without waiting: 0, or 1 + the first column whose pivot is not
  /// positive or not finite; the factor is then unusable.
  absl::Status Factorize(double* matrix, int32_t* info, Queue& queue) const;

 private:
  absl::Status Subtract(double* matrix, int64_t first, Queue& queue) const;

  int64_t size_ = 0;
  double* inverse_ = nullptr;  // [128, 128]
  double* panel_ = nullptr;    // [size, 128]
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_CHOLESKY_STEPS_H_
