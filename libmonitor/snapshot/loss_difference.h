#ifndef PTQWATCH_SNAPSHOT_LOSS_DIFFERENCE_H_
#define PTQWATCH_SNAPSHOT_LOSS_DIFFERENCE_H_

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"

namespace ptqwatch::internal {

/// Compares bits, so NaN equals NaN. Either tensor may be undefined.
bool SameBits(const at::Tensor& a, const at::Tensor& b);

/// The largest |a - b| / max(1, |a|) of two floating-point tensors; 0 for the same bits or NaN in
/// the same places. Infinity if only one is defined or is NaN, or if shapes or dtypes differ.
double LossDifference(const at::Tensor& a, const at::Tensor& b);

/// How far two evaluations of a batch may differ. On a GPU atomic additions in the forward pass
/// (scatter_add, index_add) come in another order each time.
inline double LossTolerance(at::Device device) { return device.is_cuda() ? 1e-6 : 0; }

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_LOSS_DIFFERENCE_H_
