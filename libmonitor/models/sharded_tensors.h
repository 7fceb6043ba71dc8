#ifndef PTQWATCH_MODELS_SHARDED_TENSORS_H_
#define PTQWATCH_MODELS_SHARDED_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch::internal {

/// The part of a tensor that one rank has written.
struct TensorBox {
  size_t file = 0;
  std::vector<int64_t> offset;  ///< of its first element in the tensor, by dimension
  std::vector<int64_t> shape;
};

/// A tensor that several files have parts of.
struct ShardedTensor {
  TensorDtype dtype = TensorDtype::kF32;
  std::vector<int64_t> shape;
  std::vector<TensorBox> boxes;  ///< without empty ones and repetitions; they cover the tensor once
};
using ShardedTensors = std::map<std::string, ShardedTensor, std::less<>>;

/// Puts together the tensors of files that torch.distributed.checkpoint's HuggingFaceStorageWriter
/// has written with save_distributed: each file has the parts of one rank, and its metadata
/// DCP_SHARDING_INFO where they begin. No file says how large a tensor is: it ends where the last
/// part ends. Equal parts, which replicas have, count once.
///
/// Errors name the file and the tensor: DataLoss if the parts of a tensor leave a gap, so that a
/// file may be missing still, or overlap; InvalidArgument if a file's metadata has no or wrong
/// offsets, or the parts of a tensor differ in their types or dimensions.
absl::StatusOr<ShardedTensors> PutTogether(absl::Span<const SafetensorsFile> files);

/// Reads elements [first, first + count) of a tensor in row-major order as float32; `name` is that
/// in the files. Errors: those of SafetensorsFile::ReadFloats. Memory: 1 MiB beside `out`.
absl::Status ReadSharded(absl::Span<const SafetensorsFile> files, const std::string& name,
                         const ShardedTensor& tensor, int64_t first, int64_t count, float* out);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_SHARDED_TENSORS_H_
