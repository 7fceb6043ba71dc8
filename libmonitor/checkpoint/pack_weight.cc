#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/enum_names.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "checkpoint/bit_stream.h"
#include "checkpoint/float16.h"
#include "ptqwatch/offline/checkpoint_export.h"
#include "quantize/kernels/number_format.h"
#include "quantize/methods.h"

namespace ptqwatch {
namespace {

using internal::PackBits;
using internal::StrCat;
using internal::WordsFor;

// Readers of GPTQ files compute the number of words as d / 32 * b.
constexpr int64_t kGptqMultiple = 32;

// Indexed by the value of the enum.
constexpr std::string_view kFormats[] = {"compressed-tensors", "gptq-v2"};

int64_t GroupsOf(const QuantizerSpec& spec, int64_t cols) {
  const int64_t size = internal::GroupSizeOf(spec, cols);
  return (cols + size - 1) / size;
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

absl::Status CheckMethod(CheckpointFormat format, const QuantizerSpec& spec) {
  const internal::Method& method = internal::MethodOf(spec);
  const bool is_float = internal::NumbersOf(spec).is_float();
  if (is_float && format == CheckpointFormat::kGptqV2) {
    return absl::InvalidArgumentError(
        StrCat("format ", ToString(spec.format), ": gptq-v2 holds integers alone"));
  }
  if (format == CheckpointFormat::kGptqV2 && spec.bits >= 5 && spec.bits <= 7) {
    return absl::InvalidArgumentError(StrCat(
        "bits ", spec.bits, ": gptq-v2 holds 2, 3, 4 or 8; its readers have 5 to 7 in planes"));
  }
  if (internal::NumbersOf(spec).checkpoint_format == nullptr) {
    return absl::InvalidArgumentError(
        StrCat("format ", ToString(spec.format), ": compressed-tensors has no such format"));
  }
  if (spec.rotation != 0) {
    return absl::InvalidArgumentError(
        StrCat("rotation ", spec.rotation, ": ", ToString(format),
               " would need a reader that rotates the layer's inputs"));
  }
  // Readers know one scale for the tensor or for square blocks, of FP8 alone.
  const bool whole = spec.group_rows == -1 && spec.group_size == -1;
  const bool square = spec.group_rows > 1 && spec.group_rows == spec.group_size;
  if (spec.group_rows != 1 && !(is_float && (whole || square))) {
    return absl::InvalidArgumentError(
        StrCat("group_rows ", spec.group_rows, " with group_size ", spec.group_size, " and format ",
               ToString(spec.format), ": ", ToString(format),
               " holds one scale a tensor or a square block for fp8 alone"));
  }
  if (method.grid && !method.channel_scale) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("method ", ToString(spec.method),
             method.grid ? ": its channel scales would have to be folded into the layer before, "
                           "which the weights alone do not name; "
                         : ": its codes are not those of a grid with scale and zero; ",
             ToString(format), " holds codes, scales and zeros alone"));
}

absl::Status CheckScaleDtype(CheckpointFormat format, const QuantizerSpec& spec) {
  const ScaleDtype dtype = spec.scale_dtype;
  if (internal::NumbersOf(spec).is_float()) return absl::OkStatus();
  if (dtype == ScaleDtype::kFloat16) return absl::OkStatus();
  if (dtype == ScaleDtype::kBFloat16 && format == CheckpointFormat::kCompressedTensors) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat("scale_dtype ", ToString(dtype), ": ", ToString(format), " stores scales as ",
             format == CheckpointFormat::kGptqV2 ? "f16" : "f16 or bf16",
             "; the stored weight would differ from the measured one"));
}

// Converts scales to the storage format. InvalidArgument if that changes one.
absl::StatusOr<std::vector<uint16_t>> HalfScales(const QuantizerSpec& spec,
                                                 const std::vector<float>& scale) {
  const bool f16 = spec.scale_dtype == ScaleDtype::kFloat16;
  std::vector<uint16_t> halves;
  halves.reserve(scale.size());
  for (const float value : scale) {
    const uint16_t half = f16 ? internal::F16FromFloat(value) : internal::Bf16FromFloat(value);
    const float stored = f16 ? internal::FloatFromF16(half) : internal::FloatFromBf16(half);
    if (stored != value || !std::isfinite(value)) {
      return absl::InvalidArgumentError(StrCat("a scale is ", value, ", which is not a number of ",
                                               ToString(spec.scale_dtype),
                                               ": it was not quantized with that scale_dtype"));
    }
    halves.push_back(half);
  }
  return halves;
}

absl::Status CheckContent(const QuantizerSpec& spec, int64_t rows, int64_t cols,
                          const QuantizedWeight& weight) {
  const auto wrong = [](std::string_view what, size_t has, int64_t needs) {
    return absl::InvalidArgumentError(
        StrCat("the quantized weight has ", has, " ", what, ", its shape needs ", needs));
  };
  const int64_t groups = rows * GroupsOf(spec, cols);
  if (static_cast<int64_t>(weight.codes.size()) != rows * cols) {
    return wrong("codes", weight.codes.size(), rows * cols);
  }
  if (static_cast<int64_t>(weight.scale.size()) != groups) {
    return wrong("scales", weight.scale.size(), groups);
  }
  if (static_cast<int64_t>(weight.zero.size()) != groups) {
    return wrong("zeros", weight.zero.size(), groups);
  }
  const int top = (1 << spec.bits) - 1;
  for (const float zero : weight.zero) {
    if (internal::NumbersOf(spec).is_float()) break;
    const bool fits =
        spec.symmetric ? zero == static_cast<float>(1 << (spec.bits - 1))
                       : zero >= 0 && zero <= static_cast<float>(top) && zero == std::floor(zero);
    if (!fits) {
      return absl::InvalidArgumentError(StrCat("a zero is ", zero, ", which a ",
                                               spec.symmetric ? "" : "a", "symmetric grid of ",
                                               spec.bits, " bits cannot have"));
    }
  }
  for (const uint8_t code : weight.codes) {
    if (code > top) {
      return absl::InvalidArgumentError(StrCat("a code is ", static_cast<int>(code), "; ",
                                               spec.bits, " bits allow at most ", top));
    }
  }
  return absl::OkStatus();
}

// Packs `streams` dense streams of `count` numbers each. The words of a stream are consecutive or,
// if interleaved, `streams` words apart: [count / words][streams].
template <typename Code>
std::vector<uint32_t> PackStreams(int64_t streams, int64_t count, int bits, bool interleaved,
                                  Code code) {
  const int64_t words = WordsFor(count, bits);
  std::vector<uint32_t> packed(static_cast<size_t>(streams * words));
  for (int64_t s = 0; s < streams; ++s) {
    PackBits(
        count, bits, [&](int64_t i) { return code(s, i); },
        packed.data() + (interleaved ? s : s * words), interleaved ? streams : 1);
  }
  return packed;
}

// Packs a stream of codes for each row, along inputs.
std::vector<uint32_t> PackCodes(const QuantizerSpec& spec, int64_t rows, int64_t cols,
                                const QuantizedWeight& weight, bool interleaved) {
  return PackStreams(rows, cols, spec.bits, interleaved, [&](int64_t r, int64_t c) {
    return weight.codes[static_cast<size_t>(r * cols + c)];
  });
}

// Packs a stream of zeros for each group, along outputs.
std::vector<uint32_t> PackZeros(const QuantizerSpec& spec, int64_t rows, int64_t groups,
                                const QuantizedWeight& weight, bool interleaved) {
  return PackStreams(groups, rows, spec.bits, interleaved, [&](int64_t g, int64_t r) {
    return static_cast<uint8_t>(weight.zero[static_cast<size_t>(r * groups + g)]);
  });
}

// compressed-tensors stores signed numbers plus 2^(b-1), which equal our codes and zeros.
std::vector<PackedTensor> PackCompressedTensors(const QuantizerSpec& spec, int64_t rows,
                                                int64_t cols, const QuantizedWeight& weight,
                                                const std::vector<uint16_t>& scales) {
  const int64_t groups = GroupsOf(spec, cols);
  const TensorDtype scale_dtype =
      spec.scale_dtype == ScaleDtype::kFloat16 ? TensorDtype::kF16 : TensorDtype::kBF16;
  std::vector<PackedTensor> tensors;
  tensors.push_back({"weight_packed",
                     TensorDtype::kI32,
                     {rows, WordsFor(cols, spec.bits)},
                     BytesOf(PackCodes(spec, rows, cols, weight, /*interleaved=*/false))});
  tensors.push_back({"weight_scale", scale_dtype, {rows, groups}, BytesOf(scales)});
  tensors.push_back(
      {"weight_shape", TensorDtype::kI64, {2}, BytesOf(std::vector<int64_t>{rows, cols})});
  if (!spec.symmetric) {
    tensors.push_back({"weight_zero_point",
                       TensorDtype::kI32,
                       {WordsFor(rows, spec.bits), groups},
                       BytesOf(PackZeros(spec, rows, groups, weight, /*interleaved=*/true))});
  }
  return tensors;
}

// The scales of a floating-point format as its readers store them.
absl::StatusOr<PackedTensor> PackScales(const QuantizerSpec& spec, int64_t rows, int64_t cols,
                                        const QuantizedWeight& weight) {
  const int64_t groups = GroupsOf(spec, cols);
  std::string bytes;
  switch (internal::NumbersOf(spec).scale) {
    case internal::GroupScale::kE8m0:
      for (const float scale : weight.scale) {
        bytes += static_cast<char>(std::ilogb(scale) + 127);
      }
      return PackedTensor{"weight_scale", TensorDtype::kU8, {rows, groups}, std::move(bytes)};
    case internal::GroupScale::kE4m3:
      for (const float scale : weight.scale) {
        bytes += static_cast<char>(
            internal::NearestNumber(scale * weight.tensor_scale, internal::E4m3()).code);
      }
      return PackedTensor{"weight_scale", TensorDtype::kF8E4M3, {rows, groups}, std::move(bytes)};
    case internal::GroupScale::kSpec:
      break;
  }
  // Rows of a block have equal scales.
  const int64_t block = spec.group_rows < 0 ? rows : spec.group_rows;
  std::vector<float> scales;
  for (int64_t r = 0; r < rows; r += block) {
    const auto row = weight.scale.begin() + r * groups;
    scales.insert(scales.end(), row, row + groups);
  }
  const auto blocks = static_cast<int64_t>(scales.size()) / groups;
  std::vector<int64_t> shape = {blocks, groups};
  if (spec.group_rows == -1 && groups == 1) shape = {1};
  if (spec.scale_dtype == ScaleDtype::kFloat32) {
    return PackedTensor{"weight_scale", TensorDtype::kF32, std::move(shape), BytesOf(scales)};
  }
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<uint16_t> halves, HalfScales(spec, scales));
  const bool f16 = spec.scale_dtype == ScaleDtype::kFloat16;
  return PackedTensor{"weight_scale", f16 ? TensorDtype::kF16 : TensorDtype::kBF16,
                      std::move(shape), BytesOf(halves)};
}

// The formats of compressed-tensors for floating-point codes: four bits in pairs, lower bits first.
absl::StatusOr<std::vector<PackedTensor>> PackFloat(const QuantizerSpec& spec, int64_t rows,
                                                    int64_t cols, const QuantizedWeight& weight) {
  std::vector<PackedTensor> tensors;
  if (spec.bits == 4) {
    std::vector<uint8_t> packed(static_cast<size_t>(rows * cols / 2));
    for (size_t i = 0; i < packed.size(); ++i) {
      packed[i] = static_cast<uint8_t>(weight.codes[2 * i] | weight.codes[2 * i + 1] << 4);
    }
    tensors.push_back({"weight_packed", TensorDtype::kU8, {rows, cols / 2}, BytesOf(packed)});
  } else {
    const bool e5m2 = internal::NumbersOf(spec).exponent_bits == 5;
    tensors.push_back({"weight",
                       e5m2 ? TensorDtype::kF8E5M2 : TensorDtype::kF8E4M3,
                       {rows, cols},
                       BytesOf(weight.codes)});
  }
  PTQWATCH_ASSIGN_OR_RETURN(PackedTensor scales, PackScales(spec, rows, cols, weight));
  tensors.push_back(std::move(scales));
  if (weight.tensor_scale != 0) {
    tensors.push_back({"weight_global_scale",
                       TensorDtype::kF32,
                       {1},
                       BytesOf(std::vector<float>{weight.tensor_scale})});
  }
  return tensors;
}

std::vector<PackedTensor> PackGptq(const QuantizerSpec& spec, int64_t rows, int64_t cols,
                                   const QuantizedWeight& weight,
                                   const std::vector<uint16_t>& scales) {
  const int64_t groups = GroupsOf(spec, cols);
  std::vector<uint16_t> transposed(scales.size());
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t r = 0; r < rows; ++r) {
      transposed[static_cast<size_t>(g * rows + r)] = scales[static_cast<size_t>(r * groups + g)];
    }
  }
  std::vector<int32_t> group_of(static_cast<size_t>(cols));
  const int64_t group_size = spec.group_size < 0 ? cols : spec.group_size;
  for (int64_t c = 0; c < cols; ++c) {
    group_of[static_cast<size_t>(c)] = static_cast<int32_t>(c / group_size);
  }
  std::vector<PackedTensor> tensors;
  tensors.push_back({"g_idx", TensorDtype::kI32, {cols}, BytesOf(group_of)});
  tensors.push_back({"qweight",
                     TensorDtype::kI32,
                     {WordsFor(cols, spec.bits), rows},
                     BytesOf(PackCodes(spec, rows, cols, weight, /*interleaved=*/true))});
  tensors.push_back({"qzeros",
                     TensorDtype::kI32,
                     {groups, WordsFor(rows, spec.bits)},
                     BytesOf(PackZeros(spec, rows, groups, weight, /*interleaved=*/false))});
  tensors.push_back({"scales", TensorDtype::kF16, {groups, rows}, BytesOf(transposed)});
  return tensors;
}

}  // namespace

std::string_view ToString(CheckpointFormat format) { return internal::EnumName(kFormats, format); }

absl::StatusOr<CheckpointFormat> ParseCheckpointFormat(std::string_view name) {
  return internal::ParseEnum<CheckpointFormat>("checkpoint format", kFormats, name);
}

absl::Status CheckPackable(CheckpointFormat format, const QuantizerSpec& spec, int64_t rows,
                           int64_t cols) {
  PTQWATCH_RETURN_IF_ERROR(Validate(spec));
  PTQWATCH_RETURN_IF_ERROR(CheckMethod(format, spec));
  PTQWATCH_RETURN_IF_ERROR(CheckScaleDtype(format, spec));
  if (rows < 1 || cols < 1) {
    return absl::InvalidArgumentError(StrCat("the weight is empty: [", rows, ", ", cols, "]"));
  }
  if (format == CheckpointFormat::kGptqV2 &&
      (rows % kGptqMultiple != 0 || cols % kGptqMultiple != 0)) {
    return absl::InvalidArgumentError(StrCat("a weight of [", rows, ", ", cols,
                                             "]: gptq-v2 packs whole words along both sides, which "
                                             "must be multiples of ",
                                             kGptqMultiple));
  }
  // Blocks of rows may be cut off, and then blocks of columns, too.
  const int64_t group = internal::GroupSizeOf(spec, cols);
  if (format == CheckpointFormat::kCompressedTensors && spec.group_rows == 1 && cols % group != 0) {
    return absl::InvalidArgumentError(StrCat("a weight of [", rows, ", ", cols,
                                             "]: compressed-tensors has no short last group, ",
                                             "and ", group, " does not divide ", cols));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PackedTensor>> PackWeight(CheckpointFormat format,
                                                     const QuantizerSpec& spec, int64_t rows,
                                                     int64_t cols, const QuantizedWeight& weight) {
  PTQWATCH_RETURN_IF_ERROR(CheckPackable(format, spec, rows, cols));
  if (weight.codes.empty()) {
    return absl::InvalidArgumentError(
        StrCat("there are no codes (status ", ToString(weight.status), ")"));
  }
  PTQWATCH_RETURN_IF_ERROR(CheckContent(spec, rows, cols, weight));
  return internal::Guard("packing a weight", absl::StatusCode::kInternal,
                         [&]() -> absl::StatusOr<std::vector<PackedTensor>> {
                           if (internal::NumbersOf(spec).is_float()) {
                             return PackFloat(spec, rows, cols, weight);
                           }
                           PTQWATCH_ASSIGN_OR_RETURN(const std::vector<uint16_t> scales,
                                                     HalfScales(spec, weight.scale));
                           return format == CheckpointFormat::kGptqV2
                                      ? PackGptq(spec, rows, cols, weight, scales)
                                      : PackCompressedTensors(spec, rows, cols, weight, scales);
                         });
}

}  // namespace ptqwatch
