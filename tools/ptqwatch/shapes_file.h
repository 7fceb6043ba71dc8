#ifndef PTQWATCH_TOOLS_PTQWATCH_SHAPES_FILE_H_
#define PTQWATCH_TOOLS_PTQWATCH_SHAPES_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/offline/plan_from_shapes.h"

namespace ptqwatch::internal {

/// The names and shapes in a file: JSON, {"name": [4096, 1024], ...} or as in the header of a
/// safetensors file ({"name": {"dtype": "F32", "shape": [4096, 1024], ...}, ...}), or a safetensors
/// file. A shape without a dtype is of float32. Errors name the file and the tensor.
absl::StatusOr<std::vector<TensorShape>> ReadShapes(const std::string& path);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_SHAPES_FILE_H_
