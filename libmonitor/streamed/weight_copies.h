#ifndef PTQWATCH_STREAMED_WEIGHT_COPIES_H_
#define PTQWATCH_STREAMED_WEIGHT_COPIES_H_

#include <cstddef>
#include <map>
#include <vector>

#include "ATen/core/Tensor.h"

namespace ptqwatch::internal {

/// Memory for other values of a block's weights, laid out as the block's own: a matrix of a stack
/// lies in a stack. A matrix product may round otherwise at other addresses or in another layout,
/// and a model in memory has the values in place. Not thread-safe.
class WeightCopies {
 public:
  /// `weights`: float32, on the CPU; must outlive this.
  explicit WeightCopies(const std::vector<at::Tensor>& weights) : weights_(weights) {}

  /// A tensor of the weight's shape that keeps its memory, with undefined values. Allocates the
  /// memory of a whole stack at its first matrix. May throw.
  at::Tensor Empty(size_t index);

 private:
  const std::vector<at::Tensor>& weights_;
  std::map<const void*, at::Tensor> memory_;  // by the storage of the block's own
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STREAMED_WEIGHT_COPIES_H_
