#ifndef PTQWATCH_CHECKPOINT_TENSOR_DTYPE_H_
#define PTQWATCH_CHECKPOINT_TENSOR_DTYPE_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch::internal {

/// The inverse of ToString. InvalidArgument for any other name.
absl::StatusOr<TensorDtype> ParseTensorDtype(std::string_view name);

int BitsPerElement(TensorDtype dtype);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CHECKPOINT_TENSOR_DTYPE_H_
