#ifndef PTQWATCH_CHECKPOINT_SAFETENSORS_HEADER_H_
#define PTQWATCH_CHECKPOINT_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch::internal {

/// The largest header that the format allows.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;
inline constexpr char kMetadataKey[] = "__metadata__";

/// Bytes of a tensor; nullopt if they overflow int64 or are not a whole number.
std::optional<int64_t> TensorBytes(TensorDtype dtype, const std::vector<int64_t>& shape);

struct SafetensorsHeader {
  TensorInfoMap tensors;
  TensorMetadata metadata;
};

/// Parses the JSON of a header that is followed by `data_bytes` bytes of data. DataLoss, naming the
/// tensor, for every violation that SafetensorsFile::Open refuses. Memory: a small multiple of
/// `json`.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t data_bytes);

/// The header's JSON, padded with spaces to a multiple of 8 bytes. REQUIRES: names and metadata are
/// UTF-8.
std::string FormatSafetensorsHeader(const SafetensorsHeader& header);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CHECKPOINT_SAFETENSORS_HEADER_H_
