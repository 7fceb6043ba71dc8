#ifndef PTQWATCH_STORED_SIZE_H_
#define PTQWATCH_STORED_SIZE_H_

#include <cmath>
#include <cstdint>

#include "ptqwatch/config.h"
#include "ptqwatch/quantizer.h"

/// How large quantized weights are in a file whose codes are compressed. docs/quantizers.md
/// compares it with what compressors reach.

namespace ptqwatch {

/// Bytes of an element that has no code: float16 or bfloat16.
inline constexpr int64_t kUnquantizedBytes = 2;

/// The size of quantized weights. Sizes of several weights add up.
struct StoredSize {
  int64_t codes = 0;  ///< number of stored codes
  /// Their entropy of order 0, in bits: the sum of -log2 p over all codes, where p is the share of
  /// a code's value in its weight. No coder that packs the codes one by one, with one table a
  /// weight, needs less.
  double code_bits = 0;
  /// The rest that decoding needs, as it is stored: scales in QuantizerSpec::scale_dtype,
  /// of MX and NVFP4 formats in a byte; zeros of asymmetric grids in as many bits as a code; a
  /// float for NVFP4's tensor; AWQ's channel scales, in the type of scales. LLM.int8's outlier
  /// columns have no codes: 16 bits an element, and 4 bytes for the column's number.
  int64_t other_bytes = 0;

  /// Bits of a code, the mean over all; 0 without codes.
  double EntropyBits() const { return codes > 0 ? code_bits / static_cast<double>(codes) : 0; }
  int64_t Bytes() const { return static_cast<int64_t>(std::ceil(code_bits / 8)) + other_bytes; }

  StoredSize& operator+=(const StoredSize& other) {
    codes += other.codes;
    code_bits += other.code_bits;
    other_bytes += other.other_bytes;
    return *this;
  }
  friend bool operator==(const StoredSize&, const StoredSize&) = default;
};

/// The size of a weight [rows, cols] that Quantize has returned for this spec. Without codes it
/// keeps kUnquantizedBytes an element. One pass over the codes, about a fifth of a nanosecond each.
/// REQUIRES: weight.codes is empty or has rows * cols codes.
PTQWATCH_EXPORT StoredSize StoredSizeOf(const QuantizedWeight& weight, const QuantizerSpec& spec,
                                        int64_t rows, int64_t cols);

}  // namespace ptqwatch

#endif  // PTQWATCH_STORED_SIZE_H_
