#include "checkpoint/tensor_dtype.h"

#include <algorithm>
#include <iterator>

#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch {
namespace {

struct DtypeRow {
  TensorDtype dtype;
  std::string_view name;
  int bits;
};

constexpr DtypeRow kDtypes[] = {
    {TensorDtype::kBool, "BOOL", 8},      {TensorDtype::kU8, "U8", 8},
    {TensorDtype::kI8, "I8", 8},          {TensorDtype::kF4, "F4", 4},
    {TensorDtype::kF6E2M3, "F6_E2M3", 6}, {TensorDtype::kF6E3M2, "F6_E3M2", 6},
    {TensorDtype::kF8E5M2, "F8_E5M2", 8}, {TensorDtype::kF8E4M3, "F8_E4M3", 8},
    {TensorDtype::kF8E8M0, "F8_E8M0", 8}, {TensorDtype::kU16, "U16", 16},
    {TensorDtype::kI16, "I16", 16},       {TensorDtype::kF16, "F16", 16},
    {TensorDtype::kBF16, "BF16", 16},     {TensorDtype::kU32, "U32", 32},
    {TensorDtype::kI32, "I32", 32},       {TensorDtype::kF32, "F32", 32},
    {TensorDtype::kU64, "U64", 64},       {TensorDtype::kI64, "I64", 64},
    {TensorDtype::kF64, "F64", 64},       {TensorDtype::kC64, "C64", 64},
};

const DtypeRow* FindRow(TensorDtype dtype) {
  const auto* row = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                 [dtype](const DtypeRow& r) { return r.dtype == dtype; });
  return row == std::end(kDtypes) ? nullptr : row;
}

}  // namespace

std::string_view ToString(TensorDtype dtype) {
  const DtypeRow* row = FindRow(dtype);
  return row == nullptr ? "unknown" : row->name;
}

bool IsConvertibleToFloat(TensorDtype dtype) {
  return dtype == TensorDtype::kF16 || dtype == TensorDtype::kBF16 || dtype == TensorDtype::kF32 ||
         dtype == TensorDtype::kF64;
}

int64_t TensorInfo::elements() const {
  int64_t count = 1;
  for (const int64_t side : shape) count *= side;
  return count;
}

std::string TensorInfo::Describe() const {
  std::string text = internal::StrCat(ToString(dtype), "[");
  for (size_t i = 0; i < shape.size(); ++i) {
    text += internal::StrCat(i == 0 ? "" : ", ", shape[i]);
  }
  return text + "]";
}

namespace internal {

absl::StatusOr<TensorDtype> ParseTensorDtype(std::string_view name) {
  std::string known;
  for (const DtypeRow& row : kDtypes) {
    if (row.name == name) return row.dtype;
    known += StrCat(known.empty() ? "" : ", ", row.name);
  }
  return absl::InvalidArgumentError(StrCat("unknown dtype ", Quoted(name), "; known are ", known));
}

int BitsPerElement(TensorDtype dtype) {
  const DtypeRow* row = FindRow(dtype);
  return row == nullptr ? 8 : row->bits;
}

}  // namespace internal
}  // namespace ptqwatch
