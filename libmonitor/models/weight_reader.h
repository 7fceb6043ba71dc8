#ifndef PTQWATCH_MODELS_WEIGHT_READER_H_
#define PTQWATCH_MODELS_WEIGHT_READER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// The tensors of a model by their names in its checkpoint.
class WeightReader {
 public:
  virtual ~WeightReader() = default;

  /// All names, ascending.
  virtual std::vector<std::string> Names() const = 0;
  /// The shape of a tensor, without reading it. NotFound if there is no such tensor.
  virtual absl::StatusOr<std::vector<int64_t>> Shape(std::string_view name) const = 0;
  /// A tensor as float32 on the CPU. Errors name the file and the tensor.
  virtual absl::StatusOr<at::Tensor> Read(std::string_view name) const = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_WEIGHT_READER_H_
