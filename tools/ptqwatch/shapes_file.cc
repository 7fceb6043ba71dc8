#include "shapes_file.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch::internal {
namespace {

using nlohmann::json;

// What safetensors allows for a header.
constexpr size_t kMostJsonBytes = 100'000'000;

int64_t ElementBytes(const std::string& dtype) {
  // The names end in the bits: "F32", "BF16", "I64"; "BOOL" and "F8_E4M3" are a byte.
  if (dtype.ends_with("64")) return 8;
  if (dtype.ends_with("32")) return 4;
  return dtype.ends_with("16") ? 2 : 1;
}

absl::StatusOr<std::vector<int64_t>> ShapeOf(const json& sides, const std::string& where) {
  std::vector<int64_t> shape;
  if (!sides.is_array()) return absl::InvalidArgumentError(StrCat(where, "has no shape"));
  for (const json& side : sides) {
    if (!side.is_number_unsigned() || side.get<uint64_t>() > INT64_MAX) {
      return absl::InvalidArgumentError(StrCat(where, "a side is no whole number: ", side.dump()));
    }
    shape.push_back(side.get<int64_t>());
  }
  return shape;
}

absl::StatusOr<std::vector<TensorShape>> FromJson(const std::string& text,
                                                  const std::string& path) {
  const json tree = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!tree.is_object())
    return absl::InvalidArgumentError(StrCat("'", path, "' is no JSON object"));
  std::vector<TensorShape> tensors;
  for (const auto& [name, value] : tree.items()) {
    if (name == "__metadata__") continue;
    const std::string where = StrCat("'", path, "': '", name, "': ");
    TensorShape tensor;
    tensor.name = name;
    if (value.is_object()) {
      if (const auto dtype = value.find("dtype"); dtype != value.end() && dtype->is_string()) {
        tensor.element_bytes = ElementBytes(dtype->get<std::string>());
      }
      PTQWATCH_ASSIGN_OR_RETURN(tensor.shape, ShapeOf(value.value("shape", json()), where));
    } else {
      PTQWATCH_ASSIGN_OR_RETURN(tensor.shape, ShapeOf(value, where));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace

absl::StatusOr<std::vector<TensorShape>> ReadShapes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(StrCat("'", path, "': ", std::strerror(errno)));
  // A safetensors file begins with the length of its header, a multiple of eight.
  file >> std::ws;
  if (file.peek() == '{') {
    std::string text;
    for (char c = 0; text.size() <= kMostJsonBytes && file.get(c);) text.push_back(c);
    if (text.size() > kMostJsonBytes) {
      return absl::InvalidArgumentError(StrCat("'", path, "': more than 100 MB of JSON"));
    }
    return FromJson(text, path);
  }
  PTQWATCH_ASSIGN_OR_RETURN(const SafetensorsFile opened, SafetensorsFile::Open(path));
  std::vector<TensorShape> tensors;
  for (const auto& [name, info] : opened.tensors()) {
    const int64_t elements = info.elements();
    tensors.push_back({name, info.shape, elements > 0 ? info.bytes / elements : 4});
  }
  return tensors;
}

}  // namespace ptqwatch::internal
