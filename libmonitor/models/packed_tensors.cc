#include "models/packed_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kBlocks = "_blocks";
constexpr std::string_view kScales = "_scales";
constexpr int64_t kGroupBytes = 16;
constexpr int64_t kGroup = 2 * kGroupBytes;  // numbers
// Rows that are unpacked at a time: what goes to their columns is contiguous.
constexpr int64_t kRowsTogether = 64;
constexpr float kE2M1[] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                           -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

// 2^(e - 127).
std::array<float, 256> PowersOfTwo() {
  std::array<float, 256> powers;
  for (int e = 0; e < 256; ++e) powers[static_cast<size_t>(e)] = std::ldexp(1.0F, e - 127);
  return powers;
}

absl::StatusOr<PackedTensor> PackedOf(absl::Span<const SafetensorsFile> files,
                                      const StoredTensor& blocks, const StoredTensor& scales) {
  const TensorInfo& numbers = *files[blocks.file].Find(blocks.name);
  const TensorInfo& exponents = *files[scales.file].Find(scales.name);
  const std::vector<int64_t>& shape = numbers.shape;
  if (numbers.dtype != TensorDtype::kU8 || shape.size() != 4 || shape[3] != kGroupBytes ||
      numbers.bytes == 0) {
    return absl::InvalidArgumentError(StrCat("tensor ", Quoted(blocks.name), " is ",
                                             numbers.Describe(),
                                             "; MXFP4 is U8[experts, rows, groups, 16]"));
  }
  if (exponents.dtype != TensorDtype::kU8 ||
      exponents.shape != std::vector<int64_t>(shape.begin(), shape.end() - 1)) {
    return absl::InvalidArgumentError(StrCat("tensor ", Quoted(scales.name), " is ",
                                             exponents.Describe(), ", but ", Quoted(blocks.name),
                                             " is ", numbers.Describe()));
  }
  return PackedTensor{
      .blocks = blocks, .scales = scales, .shape = {shape[0], kGroup * shape[2], shape[1]}};
}

}  // namespace

absl::StatusOr<PackedTensors> TakePacked(absl::Span<const SafetensorsFile> files, bool sharded,
                                         StoredTensors& stored) {
  PackedTensors packed;
  for (const auto& [name, tensor] : stored) {
    const bool is_blocks = name.ends_with(kBlocks);
    if (!is_blocks && !name.ends_with(kScales)) continue;
    if (sharded) {
      return absl::InvalidArgumentError(
          StrCat("tensor ", Quoted(name), ": MXFP4 is not read from shards of ranks"));
    }
    const std::string stem = name.substr(0, name.size() - kBlocks.size());
    const std::string other = StrCat(stem, is_blocks ? kScales : kBlocks);
    const auto found = stored.find(other);
    if (found == stored.end()) {
      return absl::InvalidArgumentError(
          StrCat("there is a tensor ", Quoted(name), ", but no ", Quoted(other)));
    }
    if (stored.contains(stem)) {
      return absl::InvalidArgumentError(
          StrCat("tensors ", Quoted(name), " and ", Quoted(stem), " are both there"));
    }
    if (!is_blocks) continue;
    PTQWATCH_ASSIGN_OR_RETURN(packed[stem], PackedOf(files, tensor, found->second));
  }
  for (const auto& [name, tensor] : packed) {
    stored.erase(StrCat(name, kBlocks));
    stored.erase(StrCat(name, kScales));
    stored.emplace(name, tensor.blocks);
  }
  return packed;
}

absl::Status ReadPacked(absl::Span<const SafetensorsFile> files, const PackedTensor& tensor,
                        int64_t first, int64_t count, float* out) {
  static const std::array<float, 256> kPowers = PowersOfTwo();
  const int64_t rows = tensor.shape[2], groups = tensor.shape[1] / kGroup;
  const int64_t row_bytes = groups * kGroupBytes;
  std::vector<char> blocks(static_cast<size_t>(kRowsTogether * row_bytes));
  std::vector<char> scales(static_cast<size_t>(kRowsTogether * groups));
  for (int64_t matrix = first; matrix < first + count; ++matrix) {
    for (int64_t begin = 0; begin < rows; begin += kRowsTogether) {
      const int64_t together = std::min(kRowsTogether, rows - begin);
      const int64_t row = matrix * rows + begin;
      PTQWATCH_RETURN_IF_ERROR(files[tensor.blocks.file].ReadBytes(
          tensor.blocks.name, row * row_bytes,
          absl::MakeSpan(blocks).first(static_cast<size_t>(together * row_bytes))));
      PTQWATCH_RETURN_IF_ERROR(files[tensor.scales.file].ReadBytes(
          tensor.scales.name, row * groups,
          absl::MakeSpan(scales).first(static_cast<size_t>(together * groups))));
      for (int64_t byte = 0; byte < row_bytes; ++byte) {
        float* const even = out + 2 * byte * rows + begin;
        float* const odd = even + rows;
        for (int64_t r = 0; r < together; ++r) {
          const auto pair =
              static_cast<unsigned char>(blocks[static_cast<size_t>(r * row_bytes + byte)]);
          const float scale = kPowers[static_cast<unsigned char>(
              scales[static_cast<size_t>(r * groups + byte / kGroupBytes)])];
          even[r] = kE2M1[pair & 15] * scale;
          odd[r] = kE2M1[pair >> 4] * scale;
        }
      }
    }
    out += tensor.shape[1] * rows;
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
