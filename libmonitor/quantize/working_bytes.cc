#include "quantize/working_bytes.h"

#include <algorithm>

namespace ptqwatch::internal {

int64_t TracePanelBytes(int64_t rows, int64_t cols) {
  // A group of rows in both precisions.
  return 12 * std::min<int64_t>(rows, 1024) * cols;
}

int64_t WorkingBytes(int64_t rows, int64_t cols, const QuantizerSpec& spec) {
  const int64_t size = rows * cols;
  const int64_t square = cols * cols;
  const int64_t group = spec.group_size < 0 ? cols : std::min<int64_t>(spec.group_size, cols);
  const int64_t grid = 8 * rows * ((cols + group - 1) / group);
  const bool clip = spec.clip == ClipSearch::kMse;
  // Codes and decoded weights.
  const int64_t common = 5 * size + TracePanelBytes(rows, cols);
  switch (spec.method) {
    case QuantizationMethod::kRtn:
      return common + grid + (clip ? 200 * group : 0);
    case QuantizationMethod::kGptq:
      return common + grid + (clip ? 200 * group : 0) + 4 * size + 6 * square;
    case QuantizationMethod::kAwq:
      return common + grid + (clip ? 5 * size + grid + 4 * group * group + 400 * group : 0);
    case QuantizationMethod::kLlmInt8:
      return common + size;
    case QuantizationMethod::kNf4:
      break;
  }
  return common + size / 16;
}

}  // namespace ptqwatch::internal
