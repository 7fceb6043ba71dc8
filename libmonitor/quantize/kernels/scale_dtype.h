#ifndef PTQWATCH_QUANTIZE_KERNELS_SCALE_DTYPE_H_
#define PTQWATCH_QUANTIZE_KERNELS_SCALE_DTYPE_H_

#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// The nearest number of that type, ties to even. `value` is not negative. A positive value becomes
/// at least the smallest positive number, so that one can divide by it. One that is too large
/// becomes infinity.
float RoundScale(float value, ScaleDtype dtype);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_SCALE_DTYPE_H_
