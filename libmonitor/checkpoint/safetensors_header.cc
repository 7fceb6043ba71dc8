#include "checkpoint/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "checkpoint/tensor_dtype.h"

namespace ptqwatch::internal {
namespace {

using nlohmann::json;

constexpr size_t kMaxDimensions = 64;

// Handles the events of the JSON parser. The parser alone would accept duplicate names, and its
// tree of a 100 MB header would take gigabytes.
class HeaderReader : public json::json_sax_t {
 public:
  SafetensorsHeader& header() { return header_; }
  const std::string& failure() const { return failure_; }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(int64_t) override { return Unexpected("a negative number"); }
  bool number_float(double, const std::string&) override { return Unexpected("a real number"); }
  bool binary(json::binary_t&) override { return Unexpected("binary data"); }

  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Fail(StrCat(Where(), " holds a number that is too large: ", value));
    }
    if (place_ == Place::kShape) {
      if (info_.shape.size() == kMaxDimensions)
        return Fail(StrCat(Where(), " has too many dimensions"));
      info_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsets) {
      offsets_.push_back(static_cast<int64_t>(value));
      return offsets_.size() <= 2 || Fail(StrCat(Where(), " has more than two offsets"));
    }
    return Unexpected("a number");
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) {
      if (!header_.metadata.emplace(key_, value).second) {
        return Fail(StrCat("metadata ", Quoted(key_), " occurs twice"));
      }
      return true;
    }
    if (place_ != Place::kTensor || key_ != "dtype") return Unexpected("a string");
    const absl::StatusOr<TensorDtype> dtype = ParseTensorDtype(value);
    if (!dtype.ok()) return Fail(StrCat(Where(), " has unknown dtype ", Quoted(value)));
    info_.dtype = *dtype;
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
      return true;
    }
    if (place_ != Place::kTop) return Unexpected("an object");
    if (name_ == kMetadataKey) {
      if (std::exchange(has_metadata_, true)) return Fail("__metadata__ occurs twice");
      place_ = Place::kMetadata;
      return true;
    }
    place_ = Place::kTensor;
    info_ = {};
    offsets_.clear();
    has_dtype_ = has_shape_ = has_offsets_ = false;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      if (!has_dtype_ || !has_shape_ || !has_offsets_) {
        return Fail(StrCat(Where(), " lacks dtype, shape or data_offsets"));
      }
      if (!EndTensor()) return false;
    }
    place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::kTensor && key_ == "shape") {
      place_ = Place::kShape;
      return true;
    }
    if (place_ == Place::kTensor && key_ == "data_offsets") {
      place_ = Place::kOffsets;
      return true;
    }
    return Unexpected("an array");
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_.size() != 2) {
      return Fail(StrCat(Where(), " needs two data_offsets"));
    }
    place_ = Place::kTensor;
    return true;
  }

  bool key(std::string& key) override {
    if (place_ == Place::kTop) {
      name_ = std::move(key);
      key_.clear();
      return true;
    }
    key_ = std::move(key);
    if (place_ == Place::kMetadata) return true;
    bool* const seen = key_ == "dtype"          ? &has_dtype_
                       : key_ == "shape"        ? &has_shape_
                       : key_ == "data_offsets" ? &has_offsets_
                                                : nullptr;
    if (seen == nullptr) return Fail(StrCat(Where(), " has an unknown field ", Quoted(key_)));
    if (std::exchange(*seen, true)) return Fail(StrCat(Where(), " has two fields ", key_));
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(StrCat("the header is not valid JSON at byte ", position));
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool Fail(std::string why) {
    if (failure_.empty()) failure_ = std::move(why);
    return false;
  }

  bool Unexpected(std::string_view what) {
    if (place_ == Place::kStart) return Fail(StrCat("the header is ", what, ", not an object"));
    return Fail(StrCat(Where(), " holds ", what, ", which does not belong there"));
  }

  std::string Where() const {
    return name_ == kMetadataKey ? name_ : StrCat("tensor ", Quoted(name_));
  }

  bool EndTensor() {
    const std::optional<int64_t> needed = TensorBytes(info_.dtype, info_.shape);
    if (!needed) return Fail(StrCat(Where(), " has a size that overflows: ", info_.Describe()));
    if (offsets_[0] > offsets_[1]) {
      return Fail(StrCat(Where(), " ends before it begins: ", offsets_[0], ", ", offsets_[1]));
    }
    if (offsets_[1] - offsets_[0] != *needed) {
      return Fail(
          StrCat(Where(), " has ", offsets_[1] - offsets_[0], " bytes, its shape needs ", *needed));
    }
    info_.offset = offsets_[0];
    info_.bytes = *needed;
    if (!header_.tensors.emplace(name_, std::move(info_)).second) {
      return Fail(StrCat(Where(), " occurs twice"));
    }
    return true;
  }

  SafetensorsHeader header_;
  std::string failure_;
  Place place_ = Place::kStart;
  std::string name_;  // of the entry in the outer object
  std::string key_;   // within that entry
  TensorInfo info_;
  std::vector<int64_t> offsets_;
  bool has_metadata_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
};

// Tensors must cover the data exactly, because overlaps and gaps could hide content. Empty if they
// do.
std::string FindMisplaced(const TensorInfoMap& tensors, int64_t data_bytes) {
  std::vector<const TensorInfoMap::value_type*> by_offset;
  by_offset.reserve(tensors.size());
  for (const auto& entry : tensors) by_offset.push_back(&entry);
  std::sort(by_offset.begin(), by_offset.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.offset, a->second.bytes) <
           std::pair(b->second.offset, b->second.bytes);
  });
  int64_t end = 0;
  for (const auto* entry : by_offset) {
    const auto& [name, info] = *entry;
    if (info.offset > data_bytes || info.bytes > data_bytes - info.offset) {
      return StrCat("tensor ", Quoted(name), " ends at byte ", info.offset + info.bytes,
                    " of the data, which has ", data_bytes);
    }
    if (info.offset != end) {
      return StrCat("tensor ", Quoted(name), " begins at byte ", info.offset,
                    " of the data; the one before it ends at ", end);
    }
    end += info.bytes;
  }
  if (end != data_bytes) {
    return StrCat("the tensors end at byte ", end, " of the data, which has ", data_bytes);
  }
  return "";
}

}  // namespace

std::optional<int64_t> TensorBytes(TensorDtype dtype, const std::vector<int64_t>& shape) {
  int64_t bits = BitsPerElement(dtype);
  for (const int64_t side : shape) {
    if (side < 0 || __builtin_mul_overflow(bits, side, &bits)) return std::nullopt;
  }
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text,
                                                         int64_t data_bytes) {
  // JSON allows white space here; the format does not.
  if (!text.starts_with('{')) return absl::DataLossError("the header does not begin with '{'");
  HeaderReader reader;
  if (!json::sax_parse(text.begin(), text.end(), &reader)) {
    return absl::DataLossError(reader.failure());
  }
  if (std::string misplaced = FindMisplaced(reader.header().tensors, data_bytes);
      !misplaced.empty()) {
    return absl::DataLossError(misplaced);
  }
  return std::move(reader.header());
}

std::string FormatSafetensorsHeader(const SafetensorsHeader& header) {
  json text = json::object();
  if (!header.metadata.empty()) text[kMetadataKey] = header.metadata;
  for (const auto& [name, info] : header.tensors) {
    text[name] = {{"dtype", ToString(info.dtype)},
                  {"shape", info.shape},
                  {"data_offsets", {info.offset, info.offset + info.bytes}}};
  }
  std::string bytes = text.dump();
  bytes.append((8 - bytes.size() % 8) % 8, ' ');
  return bytes;
}

}  // namespace ptqwatch::internal
