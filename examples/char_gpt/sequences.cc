#include "sequences.h"

#include <algorithm>

#include "ATen/ops/empty.h"

namespace ptqwatch::examples {

void FillSequences(std::span<const uint8_t> text, SequenceShape shape,
                   std::span<const int64_t> starts, const at::Tensor& x, const at::Tensor& y) {
  int64_t* inputs = x.mutable_data_ptr<int64_t>();
  int64_t* targets = y.mutable_data_ptr<int64_t>();
  for (const int64_t start : starts) {
    const uint8_t* first = text.data() + start;
    inputs = std::copy_n(first, shape.inputs, inputs);
    targets = std::copy_n(first + shape.characters() - shape.length, shape.length, targets);
  }
}

std::vector<int64_t> DrawStarts(std::span<const uint8_t> text, SequenceShape shape, int64_t count,
                                std::mt19937_64& generator) {
  const uint64_t choices = text.size() - static_cast<uint64_t>(shape.characters()) + 1;
  std::vector<int64_t> starts(static_cast<size_t>(count));
  // std::uniform_int_distribution differs between standard libraries. The bias of the remainder is
  // 2^-40.
  for (int64_t& start : starts) start = static_cast<int64_t>(generator() % choices);
  return starts;
}

std::vector<int64_t> EvenStarts(std::span<const uint8_t> text, SequenceShape shape, int64_t count,
                                int64_t batch) {
  const int64_t choices = static_cast<int64_t>(text.size()) - shape.characters() + 1;
  const int64_t batches = (count + batch - 1) / batch;
  std::vector<int64_t> starts;
  for (int64_t first = 0; first < batches; ++first) {
    for (int64_t i = first; i < count; i += batches) starts.push_back(i * choices / count);
  }
  return starts;
}

std::vector<std::vector<at::Tensor>> MakeBatches(std::span<const uint8_t> text, SequenceShape shape,
                                                 std::span<const int64_t> starts, int64_t batch) {
  std::vector<std::vector<at::Tensor>> batches;
  for (size_t first = 0; first < starts.size(); first += static_cast<size_t>(batch)) {
    const auto part =
        starts.subspan(first, std::min(static_cast<size_t>(batch), starts.size() - first));
    const int64_t count = static_cast<int64_t>(part.size());
    const at::Tensor x = at::empty({count, shape.inputs}, at::kLong);
    const at::Tensor y = at::empty({count, shape.length}, at::kLong);
    FillSequences(text, shape, part, x, y);
    batches.push_back({x, y});
  }
  return batches;
}

}  // namespace ptqwatch::examples
