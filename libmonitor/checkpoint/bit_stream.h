#ifndef PTQWATCH_CHECKPOINT_BIT_STREAM_H_
#define PTQWATCH_CHECKPOINT_BIT_STREAM_H_

#include <cstdint>

namespace ptqwatch::internal {

/// Number of 32-bit words that hold `count` numbers of `bits` bits.
constexpr int64_t WordsFor(int64_t count, int bits) { return (count * bits + 31) / 32; }

/// Writes code(0), ..., code(count - 1), each below 2^bits, bits <= 8, as a dense stream: number i
/// begins at bit i * bits, counted from the lowest bit of the first word. Word k goes to words[k *
/// stride].
template <typename Code>
void PackBits(int64_t count, int bits, Code code, uint32_t* words, int64_t stride) {
  uint64_t pending = 0;
  int filled = 0;
  for (int64_t i = 0; i < count; ++i) {
    pending |= static_cast<uint64_t>(code(i)) << filled;
    filled += bits;
    if (filled >= 32) {
      *words = static_cast<uint32_t>(pending);
      words += stride;
      pending >>= 32;
      filled -= 32;
    }
  }
  if (filled > 0) *words = static_cast<uint32_t>(pending);
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CHECKPOINT_BIT_STREAM_H_
