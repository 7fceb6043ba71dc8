#include "support/unpack_weight.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "checkpoint/bit_stream.h"
#include "checkpoint/float16.h"
#include "checkpoint/safetensors_header.h"

namespace ptqwatch::testing {
namespace {

using internal::StrCat;
using internal::WordsFor;

class Tensors {
 public:
  explicit Tensors(const std::vector<PackedTensor>& tensors) : tensors_(tensors) {}

  /// Finds a tensor with `sides` dimensions whose content has the size of its shape.
  absl::StatusOr<const PackedTensor*> Find(std::string_view name, TensorDtype dtype,
                                           size_t sides) const {
    for (const PackedTensor& tensor : tensors_) {
      if (tensor.name != name) continue;
      const TensorInfo info{.dtype = tensor.dtype, .shape = tensor.shape};
      const std::optional<int64_t> bytes = internal::TensorBytes(tensor.dtype, tensor.shape);
      if (tensor.dtype != dtype || tensor.shape.size() != sides || !bytes ||
          static_cast<int64_t>(tensor.bytes.size()) != *bytes) {
        return absl::DataLossError(StrCat(name, " is ", info.Describe(), " with ",
                                          tensor.bytes.size(), " bytes, expected ", ToString(dtype),
                                          " with ", sides, " sides"));
      }
      return &tensor;
    }
    return absl::DataLossError(StrCat("there is no ", name));
  }

  bool Has(std::string_view name, TensorDtype dtype) const {
    for (const PackedTensor& tensor : tensors_) {
      if (tensor.name == name) return tensor.dtype == dtype;
    }
    return false;
  }

 private:
  const std::vector<PackedTensor>& tensors_;
};

absl::Status ExpectShape(const PackedTensor& tensor, const std::vector<int64_t>& shape) {
  if (tensor.shape == shape) return absl::OkStatus();
  const TensorInfo has{.dtype = tensor.dtype, .shape = tensor.shape};
  const TensorInfo needs{.dtype = tensor.dtype, .shape = shape};
  return absl::DataLossError(
      StrCat(tensor.name, " is ", has.Describe(), ", expected ", needs.Describe()));
}

template <typename T>
std::vector<T> ValuesOf(const PackedTensor& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

int64_t GroupSize(const QuantizerSpec& spec, int64_t cols) {
  return spec.group_size < 0 ? cols : spec.group_size;
}

int64_t GroupsOf(const QuantizerSpec& spec, int64_t cols) {
  const int64_t size = GroupSize(spec, cols);
  return (cols + size - 1) / size;
}

// A matrix must not be empty, and products of its sizes must not overflow.
absl::Status CheckSize(int64_t rows, int64_t cols) {
  constexpr int64_t kMaxSide = int64_t{1} << 30;
  if (rows < 1 || cols < 1 || rows > kMaxSide || cols > kMaxSide) {
    return absl::DataLossError(StrCat("impossible shape [", rows, ", ", cols, "]"));
  }
  return absl::OkStatus();
}

// `group_of[c]` is the group of column c.
void Decode(int64_t groups, const std::vector<int32_t>& group_of, UnpackedWeight* weight) {
  weight->dequantized.resize(weight->codes.size());
  size_t at = 0;
  for (int64_t r = 0; r < weight->rows; ++r) {
    for (int64_t c = 0; c < weight->cols; ++c, ++at) {
      const size_t group = static_cast<size_t>(r * groups + group_of[static_cast<size_t>(c)]);
      weight->dequantized[at] =
          weight->scale[group] * (static_cast<float>(weight->codes[at]) - weight->zero[group]);
    }
  }
}

absl::StatusOr<UnpackedWeight> UnpackCompressedTensors(const QuantizerSpec& spec,
                                                       const Tensors& tensors) {
  const auto shape = tensors.Find("weight_shape", TensorDtype::kI64, 1);
  const auto packed = tensors.Find("weight_packed", TensorDtype::kI32, 2);
  const bool f16 = tensors.Has("weight_scale", TensorDtype::kF16);
  const auto scale = tensors.Find("weight_scale", f16 ? TensorDtype::kF16 : TensorDtype::kBF16, 2);
  for (const auto* found : {&shape, &packed, &scale}) {
    if (!found->ok()) return found->status();
  }
  PTQWATCH_RETURN_IF_ERROR(ExpectShape(**shape, {2}));
  UnpackedWeight weight;
  weight.rows = ValuesOf<int64_t>(**shape)[0];
  weight.cols = ValuesOf<int64_t>(**shape)[1];
  const int64_t rows = weight.rows;
  const int64_t cols = weight.cols;
  PTQWATCH_RETURN_IF_ERROR(CheckSize(rows, cols));
  const int64_t groups = GroupsOf(spec, cols);
  const int64_t words = WordsFor(cols, spec.bits);
  PTQWATCH_RETURN_IF_ERROR(ExpectShape(**packed, {rows, words}));
  PTQWATCH_RETURN_IF_ERROR(ExpectShape(**scale, {rows, groups}));

  const std::vector<uint32_t> stream = ValuesOf<uint32_t>(**packed);
  weight.codes.resize(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r) {
    uint8_t* codes = weight.codes.data() + r * cols;
    UnpackBits(cols, spec.bits, stream.data() + r * words, 1,
               [codes](int64_t i, uint8_t code) { codes[i] = code; });
  }
  for (const uint16_t half : ValuesOf<uint16_t>(**scale)) {
    weight.scale.push_back(f16 ? internal::FloatFromF16(half) : internal::FloatFromBf16(half));
  }
  weight.zero.assign(weight.scale.size(), static_cast<float>(1 << (spec.bits - 1)));
  if (!spec.symmetric) {
    const auto zeros = tensors.Find("weight_zero_point", TensorDtype::kI32, 2);
    if (!zeros.ok()) return zeros.status();
    PTQWATCH_RETURN_IF_ERROR(ExpectShape(**zeros, {WordsFor(rows, spec.bits), groups}));
    const std::vector<uint32_t> zero_stream = ValuesOf<uint32_t>(**zeros);
    for (int64_t g = 0; g < groups; ++g) {
      UnpackBits(rows, spec.bits, zero_stream.data() + g, groups, [&](int64_t r, uint8_t zero) {
        weight.zero[static_cast<size_t>(r * groups + g)] = static_cast<float>(zero);
      });
    }
  }
  std::vector<int32_t> group_of(static_cast<size_t>(cols));
  for (int64_t c = 0; c < cols; ++c) {
    group_of[static_cast<size_t>(c)] = static_cast<int32_t>(c / GroupSize(spec, cols));
  }
  Decode(groups, group_of, &weight);
  return weight;
}

absl::StatusOr<UnpackedWeight> UnpackGptq(const QuantizerSpec& spec, const Tensors& tensors) {
  const auto packed = tensors.Find("qweight", TensorDtype::kI32, 2);
  const auto zeros = tensors.Find("qzeros", TensorDtype::kI32, 2);
  const auto scale = tensors.Find("scales", TensorDtype::kF16, 2);
  const auto index = tensors.Find("g_idx", TensorDtype::kI32, 1);
  for (const auto* found : {&packed, &zeros, &scale, &index}) {
    if (!found->ok()) return found->status();
  }
  UnpackedWeight weight;
  weight.rows = (*packed)->shape[1];
  weight.cols = (*index)->shape[0];
  const int64_t rows = weight.rows;
  const int64_t cols = weight.cols;
  PTQWATCH_RETURN_IF_ERROR(CheckSize(rows, cols));
  const int64_t groups = GroupsOf(spec, cols);
  const int64_t zero_words = WordsFor(rows, spec.bits);
  PTQWATCH_RETURN_IF_ERROR(ExpectShape(**packed, {WordsFor(cols, spec.bits), rows}));
  PTQWATCH_RETURN_IF_ERROR(ExpectShape(**zeros, {groups, zero_words}));
  PTQWATCH_RETURN_IF_ERROR(ExpectShape(**scale, {groups, rows}));
  const std::vector<int32_t> group_of = ValuesOf<int32_t>(**index);
  for (const int32_t group : group_of) {
    if (group < 0 || group >= groups) {
      return absl::DataLossError(StrCat("g_idx names group ", group, " of ", groups));
    }
  }

  const std::vector<uint32_t> stream = ValuesOf<uint32_t>(**packed);
  weight.codes.resize(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r) {
    uint8_t* codes = weight.codes.data() + r * cols;
    UnpackBits(cols, spec.bits, stream.data() + r, rows,
               [codes](int64_t i, uint8_t code) { codes[i] = code; });
  }
  const std::vector<uint32_t> zero_stream = ValuesOf<uint32_t>(**zeros);
  const std::vector<uint16_t> halves = ValuesOf<uint16_t>(**scale);
  weight.scale.resize(static_cast<size_t>(rows * groups));
  weight.zero.resize(weight.scale.size());
  for (int64_t g = 0; g < groups; ++g) {
    UnpackBits(
        rows, spec.bits, zero_stream.data() + g * zero_words, 1, [&](int64_t r, uint8_t zero) {
          const size_t at = static_cast<size_t>(r * groups + g);
          weight.zero[at] = static_cast<float>(zero);
          weight.scale[at] = internal::FloatFromF16(halves[static_cast<size_t>(g * rows + r)]);
        });
  }
  Decode(groups, group_of, &weight);
  return weight;
}

}  // namespace

absl::StatusOr<UnpackedWeight> UnpackWeight(CheckpointFormat format, const QuantizerSpec& spec,
                                            const std::vector<PackedTensor>& tensors) {
  PTQWATCH_RETURN_IF_ERROR(Validate(spec));
  return internal::Guard([&]() -> absl::StatusOr<UnpackedWeight> {
    return format == CheckpointFormat::kGptqV2 ? UnpackGptq(spec, Tensors(tensors))
                                               : UnpackCompressedTensors(spec, Tensors(tensors));
  });
}

}  // namespace ptqwatch::testing
