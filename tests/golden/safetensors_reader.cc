#include "golden/safetensors_reader.h"

#include <bit>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "report/str_cat.h"

namespace ptqwatch::testing {
namespace {

using internal::StrCat;
using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

// The format itself allows no larger header.
constexpr uint64_t kMaxHeader = 100'000'000;
// A crafted header may not make the reader eat the machine's memory or stack.
constexpr int kMaxDepth = 8;

absl::Status Damaged(const std::string& what) { return absl::DataLossError(what); }

std::optional<size_t> ElementSize(std::string_view dtype) {
  if (dtype == "BOOL" || dtype == "U8" || dtype == "I8") return 1;
  if (dtype == "I16" || dtype == "U16" || dtype == "F16" || dtype == "BF16") return 2;
  if (dtype == "I32" || dtype == "U32" || dtype == "F32") return 4;
  if (dtype == "I64" || dtype == "U64" || dtype == "F64") return 8;
  return std::nullopt;
}

std::optional<uint64_t> AsSize(const json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const uint64_t size = value.get<uint64_t>();
  if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return size;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += StrCat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

absl::StatusOr<json> ParseHeader(std::string_view text) {
  bool too_deep = false;
  const json::parser_callback_t guard = [&](int depth, json::parse_event_t, json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return depth <= kMaxDepth;
  };
  json header = json::parse(text.begin(), text.end(), guard, /*allow_exceptions=*/false);
  if (header.is_discarded() || too_deep || !header.is_object()) {
    return Damaged("the header is not a JSON object");
  }
  return header;
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(StrCat(path, ": cannot be opened"));
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (in.bad()) return Damaged(StrCat(path, ": cannot be read"));

  const auto damaged = [&path](const std::string& what) {
    return Damaged(StrCat(path, ": damaged: ", what));
  };
  if (bytes.size() < 8) return damaged(StrCat("only ", bytes.size(), " bytes"));
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > kMaxHeader || length > bytes.size() - 8) {
    return damaged(StrCat("header of ", length, " bytes in a file of ", bytes.size()));
  }
  absl::StatusOr<json> header = ParseHeader(std::string_view(bytes).substr(8, length));
  if (!header.ok()) return damaged(std::string(header.status().message()));

  SafetensorsFile file;
  const uint64_t available = bytes.size() - 8 - length;
  for (const auto& [name, entry] : header->items()) {
    if (!entry.is_object()) return damaged(StrCat("entry '", name, "' is not an object"));
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return damaged(StrCat("metadata '", key, "' is not a string"));
        file.metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    const auto dtype = entry.find("dtype");
    const auto shape = entry.find("shape");
    const auto offsets = entry.find("data_offsets");
    if (dtype == entry.end() || !dtype->is_string() || shape == entry.end() || !shape->is_array() ||
        offsets == entry.end() || !offsets->is_array() || offsets->size() != 2) {
      return damaged(StrCat("tensor '", name, "' lacks dtype, shape or data_offsets"));
    }
    Tensor tensor;
    tensor.dtype = dtype->get<std::string>();
    const std::optional<size_t> element = ElementSize(tensor.dtype);
    if (!element) return damaged(StrCat("tensor '", name, "' has unknown dtype ", tensor.dtype));
    uint64_t expected = *element;
    for (const json& side : *shape) {
      const std::optional<uint64_t> size = AsSize(side);
      if (!size) return damaged(StrCat("tensor '", name, "' has a bad shape"));
      tensor.shape.push_back(static_cast<int64_t>(*size));
      if (__builtin_mul_overflow(expected, *size, &expected)) {
        return damaged(StrCat("tensor '", name, "' is too large"));
      }
    }
    const std::optional<uint64_t> begin = AsSize((*offsets)[0]);
    const std::optional<uint64_t> end = AsSize((*offsets)[1]);
    if (!begin || !end || *begin > *end || *end > available) {
      return damaged(StrCat("tensor '", name, "' lies outside the file"));
    }
    if (*end - *begin != expected) {
      return damaged(
          StrCat("tensor '", name, "' has ", *end - *begin, " bytes, its shape needs ", expected));
    }
    tensor.begin = static_cast<size_t>(*begin);
    tensor.bytes = static_cast<size_t>(expected);
    file.tensors_[name] = std::move(tensor);
  }
  file.data_ = bytes.substr(8 + length);
  return file;
}

absl::StatusOr<std::vector<int64_t>> SafetensorsFile::Shape(std::string_view tensor) const {
  const auto found = tensors_.find(std::string(tensor));
  if (found == tensors_.end()) return absl::NotFoundError(StrCat("no tensor '", tensor, "'"));
  return found->second.shape;
}

template <typename T>
absl::StatusOr<std::vector<T>> SafetensorsFile::Values(std::string_view tensor,
                                                       std::string_view dtype,
                                                       const std::vector<int64_t>& shape) const {
  const auto found = tensors_.find(std::string(tensor));
  if (found == tensors_.end()) return absl::NotFoundError(StrCat("no tensor '", tensor, "'"));
  const Tensor& entry = found->second;
  if (entry.dtype != dtype || entry.shape != shape) {
    return Damaged(StrCat("tensor '", tensor, "' is ", entry.dtype, ShapeText(entry.shape),
                          ", expected ", dtype, ShapeText(shape)));
  }
  std::vector<T> values(entry.bytes / sizeof(T));
  if (entry.bytes > 0) std::memcpy(values.data(), data_.data() + entry.begin, entry.bytes);
  return values;
}

absl::StatusOr<std::vector<float>> SafetensorsFile::Floats(
    std::string_view tensor, const std::vector<int64_t>& shape) const {
  return Values<float>(tensor, "F32", shape);
}
absl::StatusOr<std::vector<double>> SafetensorsFile::Doubles(
    std::string_view tensor, const std::vector<int64_t>& shape) const {
  return Values<double>(tensor, "F64", shape);
}
absl::StatusOr<std::vector<int8_t>> SafetensorsFile::Int8s(
    std::string_view tensor, const std::vector<int64_t>& shape) const {
  return Values<int8_t>(tensor, "I8", shape);
}
absl::StatusOr<std::vector<uint8_t>> SafetensorsFile::Uint8s(
    std::string_view tensor, const std::vector<int64_t>& shape) const {
  return Values<uint8_t>(tensor, "U8", shape);
}
absl::StatusOr<std::vector<int32_t>> SafetensorsFile::Int32s(
    std::string_view tensor, const std::vector<int64_t>& shape) const {
  return Values<int32_t>(tensor, "I32", shape);
}
absl::StatusOr<std::vector<int64_t>> SafetensorsFile::Int64s(
    std::string_view tensor, const std::vector<int64_t>& shape) const {
  return Values<int64_t>(tensor, "I64", shape);
}

absl::StatusOr<std::string> SafetensorsFile::Text(std::string_view key) const {
  const auto found = metadata_.find(std::string(key));
  if (found == metadata_.end()) return absl::NotFoundError(StrCat("no metadata '", key, "'"));
  return found->second;
}

absl::StatusOr<double> SafetensorsFile::Number(std::string_view key) const {
  absl::StatusOr<std::string> text = Text(key);
  if (!text.ok()) return text.status();
  double value = 0;
  if (!absl::SimpleAtod(*text, &value)) {
    return Damaged(StrCat("metadata '", key, "' is '", *text, "', not a number"));
  }
  return value;
}

absl::StatusOr<int> SafetensorsFile::Integer(std::string_view key) const {
  absl::StatusOr<std::string> text = Text(key);
  if (!text.ok()) return text.status();
  int value = 0;
  if (!absl::SimpleAtoi(*text, &value)) {
    return Damaged(StrCat("metadata '", key, "' is '", *text, "', not an integer"));
  }
  return value;
}

absl::StatusOr<bool> SafetensorsFile::Flag(std::string_view key) const {
  absl::StatusOr<std::string> text = Text(key);
  if (!text.ok()) return text.status();
  if (*text == "true" || *text == "True") return true;
  if (*text == "false" || *text == "False") return false;
  return Damaged(StrCat("metadata '", key, "' is '", *text, "', neither true nor false"));
}

}  // namespace ptqwatch::testing
