#ifndef PTQWATCH_QUANTIZE_WORKING_BYTES_H_
#define PTQWATCH_QUANTIZE_WORKING_BYTES_H_

#include <cstdint>

#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// What quantizing a [rows, cols] weight reserves, in bytes, the result included: all that it ever
/// holds, as if at once.
int64_t WorkingBytes(int64_t rows, int64_t cols, const QuantizerSpec& spec);

/// Of these, the panels in which a trace is computed. GPTQ's own buffers are not there then.
int64_t TracePanelBytes(int64_t rows, int64_t cols);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_WORKING_BYTES_H_
