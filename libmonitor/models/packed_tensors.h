#ifndef PTQWATCH_MODELS_PACKED_TENSORS_H_
#define PTQWATCH_MODELS_PACKED_TENSORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "models/stored_tensors.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch::internal {

/// A stack of matrices in MXFP4, as gpt-oss publishes its experts: uint8 "..._blocks" [experts,
/// rows, groups, 16], where a byte holds two numbers in E2M1, the first in its lower half, and
/// uint8 "..._scales" [experts, rows, groups], exponents of 2 plus 127 (OCP Microscaling Formats
/// 1.0). As transformers unpacks them, a number is [expert][place in the row][row]: rows become
/// columns.
struct PackedTensor {
  StoredTensor blocks = {};
  StoredTensor scales = {};
  std::vector<int64_t> shape = {};  ///< [experts, 32 groups, rows]
};
using PackedTensors = std::map<std::string, PackedTensor, std::less<>>;

/// Puts one name in place of each pair: "x" for "x_blocks" and "x_scales". InvalidArgument names a
/// tensor without the other one, of another type or shape, or "x" if it is there, too, and any of
/// these if the files are `sharded` over ranks.
absl::StatusOr<PackedTensors> TakePacked(absl::Span<const SafetensorsFile> files, bool sharded,
                                         StoredTensors& stored);

/// Reads `count` matrices from the number `first` on as float32; a scale of 255 gives infinity and
/// NaN, as in transformers. Takes a megabyte beside `out`. Errors: those of reading.
absl::Status ReadPacked(absl::Span<const SafetensorsFile> files, const PackedTensor& tensor,
                        int64_t first, int64_t count, float* out);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_PACKED_TENSORS_H_
