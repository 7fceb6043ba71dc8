#ifndef PTQWATCH_TESTS_SUPPORT_UNPACK_WEIGHT_H_
#define PTQWATCH_TESTS_SUPPORT_UNPACK_WEIGHT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/offline/checkpoint_export.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::testing {

/// Calls put(i, number) for each number of a stream of internal::PackBits.
template <typename Put>
void UnpackBits(int64_t count, int bits, const uint32_t* words, int64_t stride, Put put) {
  uint64_t pending = 0;
  int filled = 0;
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  for (int64_t i = 0; i < count; ++i) {
    if (filled < bits) {
      pending |= static_cast<uint64_t>(*words) << filled;
      words += stride;
      filled += 32;
    }
    put(i, static_cast<uint8_t>(pending & mask));
    pending >>= bits;
    filled -= bits;
  }
}

struct UnpackedWeight {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<uint8_t> codes;      ///< [rows, cols]
  std::vector<float> scale;        ///< [rows, G]
  std::vector<float> zero;         ///< [rows, G]
  std::vector<float> dequantized;  ///< [rows, cols]: scale * (code - zero) in float32
};

/// The inverse of PackWeight, written from the description of the formats. Uses bits, group_size
/// and symmetric of `spec`. Tensors may come from any source: returns DataLoss if tensors are
/// missing or inconsistent.
absl::StatusOr<UnpackedWeight> UnpackWeight(CheckpointFormat format, const QuantizerSpec& spec,
                                            const std::vector<PackedTensor>& tensors);

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_UNPACK_WEIGHT_H_
