#ifndef PTQWATCH_CUDA_TRACE_STEPS_H_
#define PTQWATCH_CUDA_TRACE_STEPS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "cuda/compute_device.h"
#include "cuda/layer_group.h"

namespace ptqwatch::internal {

/// Computes tr(X S X^T) for the layers of a group, where S is the sum of their inputs' products,
/// and the same sum over absolute values of its terms; see QuadraticTrace in
/// quantize/kernels/gram.h.
///   float32  products with the folded triangle T of S, the terms added up in float64. A term is
///            one of (X T) * X. X and T go into the products as sums of two bfloat16, without the
///            product of the second parts, and are added up in float32. The value is off by at most
///            3 * 2^-16 + cols * 2^-27 of the sum of all |x_i S_ij x_j|. Such errors average out: a
///            test finds less than 1e-6 of it. Cost: 3/2 rows * cols^2 multiply-adds of bfloat16.
///   float64  all float64. Cost: twice that.
class Tracer {
 public:
  /// `group` must outlive the Tracer.
  explicit Tracer(const LayerGroup& group) : group_(group) {}

  /// Takes memory for the precisions that the group's attempt needs.
  absl::Status Take(Arena& arena);
  /// Folds S if float32 is needed.
  absl::Status Prepare(Queue& queue);
  /// The memory for X, [rows, cols] per layer.
  const Strided<float>& x() const { return x_; }
  /// Writes the value to `position` and the magnitude to the next one. Keeps X.
  absl::Status Run(Queue& queue, Precision precision, int position);

 private:
  absl::Status RunFloat32(Queue& queue, int position);
  absl::Status Multiply(Queue& queue, int64_t rows, int64_t first, int64_t width);
  absl::Status RunFloat64(Queue& queue, int position);
  absl::Status Finish(Queue& queue, int position, int64_t count);
  bool Wants(Precision precision) const;

  const LayerGroup& group_;
  int64_t padded_ = 0;  // numbers from one row of a part to the next
  Strided<float> x_;
  TwoParts folded_;
  TwoParts rows_;  // of X, as many as are multiplied at a time
  Strided<float> product_;
  double* wide_x_ = nullptr;
  double* wide_product_ = nullptr;
  Strided<double> partials_;
  int64_t rows32_ = 0;  // multiplied at a time
  int64_t rows64_ = 0;
};

/// Computes the losses of quantized weights for the group's attempt. AWQ's search has its own.
absl::Status AddTraces(const LayerGroup& group, Queue& queue);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_TRACE_STEPS_H_
