#ifndef PTQWATCH_QUANTIZE_KERNELS_SCALE_DTYPE_H_
#define PTQWATCH_QUANTIZE_KERNELS_SCALE_DTYPE_H_

#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// Rounds to the nearest number of the type, ties to even. `value` must not be negative. A positive
/// value becomes at least the type's smallest positive number, so that callers can divide by it. A
/// value that is too large becomes infinity.
float RoundScale(float value, ScaleDtype dtype);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_SCALE_DTYPE_H_
