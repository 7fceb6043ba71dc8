#include <cmath>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "checkpoint/bit_stream.h"
#include "checkpoint/float16.h"
#include "ptqwatch/offline/checkpoint_export.h"

namespace ptqwatch {
namespace {

using internal::PackBits;
using internal::StrCat;
using internal::WordsFor;

// Readers of GPTQ files count words as d / 32 * b.
constexpr int64_t kGptqMultiple = 32;

constexpr CheckpointFormat kFormats[] = {CheckpointFormat::kCompressedTensors,
                                         CheckpointFormat::kGptqV2};

int64_t GroupsOf(const QuantizerSpec& spec, int64_t cols) {
  return spec.group_size < 0 ? 1 : (cols + spec.group_size - 1) / spec.group_size;
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

absl::Status CheckMethod(CheckpointFormat format, const QuantizerSpec& spec) {
  switch (spec.method) {
    case QuantizationMethod::kRtn:
    case QuantizationMethod::kGptq:
      return absl::OkStatus();
    case QuantizationMethod::kAwq:
      return absl::InvalidArgumentError(
          StrCat("method awq: its channel scales would have to be folded into the layer before, "
                 "which ",
                 ToString(format), " cannot express and the weights alone do not name"));
    default:
      return absl::InvalidArgumentError(StrCat("method ", ToString(spec.method),
                                               ": its codes are not those of a grid with scale and "
                                               "zero, which is what ",
                                               ToString(format), " holds"));
  }
}

absl::Status CheckScaleDtype(CheckpointFormat format, ScaleDtype dtype) {
  if (dtype == ScaleDtype::kFloat16) return absl::OkStatus();
  if (dtype == ScaleDtype::kBFloat16 && format == CheckpointFormat::kCompressedTensors) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat("scale_dtype ", ToString(dtype), ": ", ToString(format), " stores scales as ",
             format == CheckpointFormat::kGptqV2 ? "f16" : "f16 or bf16",
             "; the stored weight would not be the one that was measured"));
}

// The scales as the format stores them. InvalidArgument for one that would change.
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
      return absl::InvalidArgumentError(
          StrCat("a code is ", static_cast<int>(code), "; ", spec.bits, " bits end at ", top));
    }
  }
  return absl::OkStatus();
}

// Adding 2^(b-1) to compressed-tensors' signed numbers gives our codes and zeros, and that is what
// it packs.
std::vector<PackedTensor> PackCompressedTensors(const QuantizerSpec& spec, int64_t rows,
                                                int64_t cols, const QuantizedWeight& weight,
                                                const std::vector<uint16_t>& scales) {
  const int64_t groups = GroupsOf(spec, cols);
  const int64_t words = WordsFor(cols, spec.bits);
  std::vector<uint32_t> packed(static_cast<size_t>(rows * words));
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* codes = weight.codes.data() + r * cols;
    PackBits(
        cols, spec.bits, [codes](int64_t i) { return codes[i]; }, packed.data() + r * words, 1);
  }
  std::vector<PackedTensor> tensors;
  tensors.push_back({"weight_packed", TensorDtype::kI32, {rows, words}, BytesOf(packed)});
  tensors.push_back(
      {"weight_scale",
       spec.scale_dtype == ScaleDtype::kFloat16 ? TensorDtype::kF16 : TensorDtype::kBF16,
       {rows, groups},
       BytesOf(scales)});
  tensors.push_back(
      {"weight_shape", TensorDtype::kI64, {2}, BytesOf(std::vector<int64_t>{rows, cols})});
  if (!spec.symmetric) {
    const int64_t zero_words = WordsFor(rows, spec.bits);
    std::vector<uint32_t> zeros(static_cast<size_t>(zero_words * groups));
    for (int64_t g = 0; g < groups; ++g) {
      const float* zero = weight.zero.data() + g;
      PackBits(
          rows, spec.bits,
          [zero, groups](int64_t r) { return static_cast<uint8_t>(zero[r * groups]); },
          zeros.data() + g, groups);
    }
    tensors.push_back(
        {"weight_zero_point", TensorDtype::kI32, {zero_words, groups}, BytesOf(zeros)});
  }
  return tensors;
}

std::vector<PackedTensor> PackGptq(const QuantizerSpec& spec, int64_t rows, int64_t cols,
                                   const QuantizedWeight& weight,
                                   const std::vector<uint16_t>& scales) {
  const int64_t groups = GroupsOf(spec, cols);
  const int64_t words = WordsFor(cols, spec.bits);
  std::vector<uint32_t> packed(static_cast<size_t>(words * rows));
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* codes = weight.codes.data() + r * cols;
    PackBits(
        cols, spec.bits, [codes](int64_t i) { return codes[i]; }, packed.data() + r, rows);
  }
  const int64_t zero_words = WordsFor(rows, spec.bits);
  std::vector<uint32_t> zeros(static_cast<size_t>(groups * zero_words));
  std::vector<uint16_t> turned(scales.size());
  for (int64_t g = 0; g < groups; ++g) {
    const float* zero = weight.zero.data() + g;
    PackBits(
        rows, spec.bits,
        [zero, groups](int64_t r) { return static_cast<uint8_t>(zero[r * groups]); },
        zeros.data() + g * zero_words, 1);
    for (int64_t r = 0; r < rows; ++r) {
      turned[static_cast<size_t>(g * rows + r)] = scales[static_cast<size_t>(r * groups + g)];
    }
  }
  std::vector<int32_t> group_of(static_cast<size_t>(cols));
  const int64_t group_size = spec.group_size < 0 ? cols : spec.group_size;
  for (int64_t c = 0; c < cols; ++c) {
    group_of[static_cast<size_t>(c)] = static_cast<int32_t>(c / group_size);
  }
  std::vector<PackedTensor> tensors;
  tensors.push_back({"g_idx", TensorDtype::kI32, {cols}, BytesOf(group_of)});
  tensors.push_back({"qweight", TensorDtype::kI32, {words, rows}, BytesOf(packed)});
  tensors.push_back({"qzeros", TensorDtype::kI32, {groups, zero_words}, BytesOf(zeros)});
  tensors.push_back({"scales", TensorDtype::kF16, {groups, rows}, BytesOf(turned)});
  return tensors;
}

}  // namespace

std::string_view ToString(CheckpointFormat format) {
  switch (format) {
    case CheckpointFormat::kCompressedTensors:
      return "compressed-tensors";
    case CheckpointFormat::kGptqV2:
      return "gptq-v2";
  }
  return "unknown";
}

absl::StatusOr<CheckpointFormat> ParseCheckpointFormat(std::string_view name) {
  for (const CheckpointFormat format : kFormats) {
    if (name == ToString(format)) return format;
  }
  return absl::InvalidArgumentError(
      StrCat("unknown format '", name, "'; known are compressed-tensors and gptq-v2"));
}

absl::Status CheckPackable(CheckpointFormat format, const QuantizerSpec& spec, int64_t rows,
                           int64_t cols) {
  if (absl::Status status = Validate(spec); !status.ok()) return status;
  if (absl::Status status = CheckMethod(format, spec); !status.ok()) return status;
  if (absl::Status status = CheckScaleDtype(format, spec.scale_dtype); !status.ok()) return status;
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
  if (format == CheckpointFormat::kCompressedTensors && spec.group_size > 0 &&
      cols % spec.group_size != 0) {
    return absl::InvalidArgumentError(StrCat("a weight of [", rows, ", ", cols,
                                             "]: compressed-tensors has no short last group, ",
                                             "and ", spec.group_size, " does not divide ", cols));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PackedTensor>> PackWeight(CheckpointFormat format,
                                                     const QuantizerSpec& spec, int64_t rows,
                                                     int64_t cols, const QuantizedWeight& weight) {
  if (absl::Status status = CheckPackable(format, spec, rows, cols); !status.ok()) return status;
  if (weight.codes.empty()) {
    return absl::InvalidArgumentError(
        StrCat("there are no codes (status ", ToString(weight.status), ")"));
  }
  if (absl::Status status = CheckContent(spec, rows, cols, weight); !status.ok()) return status;
  try {
    absl::StatusOr<std::vector<uint16_t>> scales = HalfScales(spec, weight.scale);
    if (!scales.ok()) return scales.status();
    return format == CheckpointFormat::kGptqV2
               ? PackGptq(spec, rows, cols, weight, *scales)
               : PackCompressedTensors(spec, rows, cols, weight, *scales);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        StrCat("no memory to pack a weight of [", rows, ", ", cols, "]"));
  }
}

}  // namespace ptqwatch
