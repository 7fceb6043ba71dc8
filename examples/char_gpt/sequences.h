#ifndef PTQWATCH_CHAR_GPT_SEQUENCES_H_
#define PTQWATCH_CHAR_GPT_SEQUENCES_H_

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "ATen/core/Tensor.h"

namespace ptqwatch::examples {

/// The shape of a sequence: `inputs` characters. The last `length` predict the next one.
struct SequenceShape {
  int64_t inputs = 0;
  int64_t length = 0;
  int64_t characters() const { return inputs + 1; }
};

/// Fills x [B, inputs] and y [B, length] (contiguous int64) with the sequences that begin at
/// `starts` [B].
void FillSequences(std::span<const uint8_t> text, SequenceShape shape,
                   std::span<const int64_t> starts, const at::Tensor& x, const at::Tensor& y);

/// `count` starts drawn uniformly. REQUIRES: the text is at least one sequence long.
std::vector<int64_t> DrawStarts(std::span<const uint8_t> text, SequenceShape shape, int64_t count,
                                std::mt19937_64& generator);

/// `count` equally spaced starts, ordered so that every batch of `batch` is spread over the whole
/// text. REQUIRES: the text is at least one sequence long.
std::vector<int64_t> EvenStarts(std::span<const uint8_t> text, SequenceShape shape, int64_t count,
                                int64_t batch);

/// The sequences at `starts` as batches {x, y} of at most `batch` sequences.
std::vector<std::vector<at::Tensor>> MakeBatches(std::span<const uint8_t> text, SequenceShape shape,
                                                 std::span<const int64_t> starts, int64_t batch);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_CHAR_GPT_SEQUENCES_H_
