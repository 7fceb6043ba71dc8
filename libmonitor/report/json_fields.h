#ifndef PTQWATCH_REPORT_JSON_FIELDS_H_
#define PTQWATCH_REPORT_JSON_FIELDS_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/strings.h"
#include "nlohmann/json.hpp"
#include "ptqwatch/status.h"
#include "report/enum_names.h"
#include "report/report_fields.h"

// Converts records with VisitFields to JSON and back.

namespace ptqwatch::internal {

/// Keeps the order of the field list, so that a line goes from the general to the particular.
using WrittenJson = nlohmann::ordered_json;

/// Returns one line, with invalid UTF-8 replaced by U+FFFD.
std::string JsonText(const WrittenJson& json);

/// Writes the members of a record as members of a JSON object. Omits numbers that are not finite
/// and absent values.
struct JsonWriter {
  WrittenJson object = WrittenJson::object();

  template <typename T>
  void operator()(const char* key, const T& value) {
    if (std::optional<WrittenJson> json = Write(value)) object[key] = *std::move(json);
  }

  // nullopt: the key is omitted.
  template <typename T>
  static std::optional<WrittenJson> Write(const T& value) {
    if constexpr (std::is_same_v<T, double>) {
      if (!std::isfinite(value)) return std::nullopt;
      return WrittenJson(value);
    } else if constexpr (std::is_enum_v<T>) {
      return WrittenJson(std::string(ToString(value)));
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return WrittenJson(value);
    } else {
      JsonWriter writer;
      VisitFields(value, writer);
      return std::move(writer.object);
    }
  }
  template <typename T>
  static std::optional<WrittenJson> Write(const std::optional<T>& value) {
    if constexpr (std::is_enum_v<T>) return WrittenJson(std::string(ToString(value)));
    if (!value) return std::nullopt;
    return Write(*value);
  }
  template <typename T>
  static std::optional<WrittenJson> Write(const std::vector<T>& values) {
    WrittenJson array = WrittenJson::array();
    for (const T& value : values) array.push_back(*Write(value));
    return array;
  }
  template <size_t kCount>
  static std::optional<WrittenJson> Write(const std::array<int64_t, kCount>& values) {
    return WrittenJson(values);
  }
  // {"taken": 3, ...}: a version with other values reads the values that it knows.
  template <typename Enum, size_t kCount>
  static std::optional<WrittenJson> Write(const Counts<Enum, kCount>& counts) {
    WrittenJson members = WrittenJson::object();
    for (size_t i = 0; i < kCount; ++i) {
      members[std::string(ToString(static_cast<Enum>(i)))] = counts[i];
    }
    return members;
  }
  static std::optional<WrittenJson> Write(const std::map<std::string, double>& values) {
    WrittenJson members = WrittenJson::object();
    for (const auto& [key, value] : values) {
      if (std::isfinite(value)) members[key] = value;
    }
    return members;
  }
};

/// A list by layer in columns (ToColumnJson): what its key ends with, and the key of the names.
inline constexpr const char* kColumnsSuffix = "_columns";
inline constexpr const char* kNamesKey = "layer_names";
/// Columns repeat texts and leave out equal values. Rows and texts that take more memory than this,
/// in bytes, are an attack.
inline constexpr size_t kMostColumnBytes = size_t{256} << 20;

/// Names and memory that the columns of a line share.
struct ColumnContext {
  const nlohmann::json* names = nullptr;  ///< those that columns refer to
  size_t bytes_left = kMostColumnBytes;

  bool Take(size_t bytes) {
    if (bytes > bytes_left) return false;
    bytes_left -= bytes;
    return true;
  }
};

template <typename T>
concept ListByName = requires(T list) {
  list.at(0).name;
};

/// Reads the keys that are present; stops at the first value of the wrong type.
class JsonReader {
 public:
  /// Messages call the object `path`. `columns` is that of the line; null for the line itself.
  JsonReader(const nlohmann::json& object, std::string path, absl::Status& status,
             ColumnContext* columns = nullptr)
      : object_(object),
        path_(std::move(path)),
        status_(status),
        columns_(columns == nullptr ? &own_columns_ : columns) {
    if (!object.is_object()) Fail(path_, "an object", object);
    if (object.contains(kNamesKey)) own_columns_.names = &object[kNamesKey];
  }
  JsonReader(const JsonReader&) = delete;
  JsonReader& operator=(const JsonReader&) = delete;

  template <typename T>
  void operator()(const char* key, T& value) {
    if (!status_.ok()) return;
    const auto found = object_.find(key);
    if (found != object_.end()) return Read(PathOf(key), *found, value);
    if constexpr (ListByName<T>) {
      const std::string columns_key = StrCat(key, kColumnsSuffix);
      const auto columns = object_.find(columns_key);
      if (columns != object_.end()) ReadColumns(PathOf(columns_key), *columns, value);
    }
  }

 private:
  std::string PathOf(std::string_view key) const {
    return path_.empty() ? std::string(key) : StrCat(path_, ".", key);
  }
  void Fail(const std::string& path, std::string_view expected, const nlohmann::json& json) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        StrCat(path.empty() ? "line" : path, " must be ", expected, ", is ", json.type_name()));
  }

  template <typename T>
  void Read(const std::string& path, const nlohmann::json& json, T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string()) return Fail(path, "a string", json);
      value = json.get<std::string>();
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_boolean()) return Fail(path, "true or false", json);
      value = json.get<bool>();
    } else if constexpr (std::is_same_v<T, double>) {
      if (!json.is_number()) return Fail(path, "a number", json);
      value = json.get<double>();
    } else if constexpr (std::is_integral_v<T>) {
      const bool too_large = json.is_number_unsigned() &&
                             json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
      if (!json.is_number_integer() || too_large) return Fail(path, "an integer", json);
      const auto wide = json.get<int64_t>();
      if (wide < std::numeric_limits<T>::min() || wide > std::numeric_limits<T>::max()) {
        return Fail(path, StrCat("an integer of ", 8 * sizeof(T), " bits"), json);
      }
      value = static_cast<T>(wide);
    } else if constexpr (std::is_enum_v<T>) {
      if (!json.is_string()) return Fail(path, "a string", json);
      ReadName(json.get_ref<const std::string&>(), value);
    } else {
      VisitFields(value, JsonReader(json, path, status_, columns_));
    }
  }
  template <typename T>
  void Read(const std::string& path, const nlohmann::json& json, std::optional<T>& value) {
    if (json.is_null()) return value.reset();
    if constexpr (std::is_enum_v<T>) {
      if (!json.is_string()) return Fail(path, "a string", json);
      ReadName(json.get_ref<const std::string&>(), value);
    } else {
      Read(path, json, value.emplace());
    }
  }
  template <typename T>
  void Read(const std::string& path, const nlohmann::json& json, std::vector<T>& values) {
    if (!json.is_array()) return Fail(path, "an array", json);
    values.clear();
    values.reserve(json.size());
    for (const nlohmann::json& element : json) {
      const std::string where = StrCat(path, "[", values.size(), "]");
      Read(where, element, values.emplace_back());
      if (!status_.ok()) return;
    }
  }
  // The indices of a list's names.
  std::vector<int64_t> NamesOf(const std::string& path, const nlohmann::json& columns,
                               size_t row_bytes) {
    std::vector<int64_t> names;
    const auto found = columns.find("name");
    if (found == columns.end()) return names;
    const size_t known = columns_->names == nullptr ? 0 : columns_->names->size();
    const size_t rows =
        found->is_number_unsigned() ? std::min(found->get<size_t>(), known + 1) : found->size();
    if (!columns_->Take(rows * row_bytes)) {
      Fail(path, "of fewer rows", columns);
    } else if (found->is_number_unsigned()) {
      names.resize(rows);
      std::iota(names.begin(), names.end(), 0);
    } else {
      Read(StrCat(path, ".name"), *found, names);
    }
    return names;
  }
  template <typename T>
  void ReadColumns(const std::string& path, const nlohmann::json& columns, std::vector<T>& values) {
    values.clear();
    if (!columns.is_object()) return Fail(path, "an object", columns);
    const std::vector<int64_t> names = NamesOf(path, columns, sizeof(T) + sizeof(int64_t));
    values.reserve(names.size());
    const auto read_cell = [&](const std::string& where, const nlohmann::json& column, size_t place,
                               auto& value) {
      if (column.is_array() && place >= column.size()) return Fail(where, "longer", column);
      const nlohmann::json& cell = column.is_array() ? column[place] : column;
      if (cell.is_null()) return;
      if (cell.is_string() && !columns_->Take(cell.get_ref<const std::string&>().size())) {
        return Fail(where, "of less text", column);
      }
      Read(where, cell, value);
    };
    for (size_t row = 0; row < names.size() && status_.ok(); ++row) {
      VisitFields(values.emplace_back(), [&](std::string_view key, auto& value) {
        if (!status_.ok()) return;
        if (key == "name") {
          static const nlohmann::json none = nlohmann::json::array();
          return read_cell(kNamesKey, columns_->names == nullptr ? none : *columns_->names,
                           static_cast<size_t>(names[row]), value);
        }
        auto column = columns.find(key);
        if (column == columns.end()) return;
        if (column->is_string()) {
          const auto equal = columns.find(column->template get_ref<const std::string&>());
          if (equal != columns.end()) column = equal;
        }
        read_cell(StrCat(path, ".", key), *column, row, value);
      });
    }
  }
  template <size_t kCount>
  void Read(const std::string& path, const nlohmann::json& json,
            std::array<int64_t, kCount>& values) {
    std::vector<int64_t> read;
    Read(path, json, read);
    std::copy_n(read.begin(), std::min(read.size(), kCount), values.begin());
  }
  template <typename Enum, size_t kCount>
  void Read(const std::string& path, const nlohmann::json& json, Counts<Enum, kCount>& counts) {
    JsonReader reader(json, path, status_);
    for (size_t i = 0; i < kCount; ++i) {
      reader(std::string(ToString(static_cast<Enum>(i))).c_str(), counts[i]);
    }
  }
  void Read(const std::string& path, const nlohmann::json& json,
            std::map<std::string, double>& values) {
    if (!json.is_object()) return Fail(path, "an object", json);
    values.clear();
    for (const auto& [key, element] : json.items()) {
      Read(StrCat(path, ".", key), element, values[key]);
      if (!status_.ok()) return;
    }
  }

  const nlohmann::json& object_;
  const std::string path_;
  absl::Status& status_;
  ColumnContext own_columns_;
  ColumnContext* const columns_;
};

/// Parses `text`; error messages begin with `what`. InvalidArgument if it is not JSON or is nested
/// more deeply than anything we write, because a parsed bracket takes a hundred times its size.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view what, std::string_view text);

/// Converts `json` to a record; missing keys leave members at their defaults. InvalidArgument,
/// beginning with `what`, if a value has the wrong type.
template <typename Record>
absl::StatusOr<Record> ReadRecord(std::string_view what, const nlohmann::json& json) {
  Record record;
  absl::Status failure;
  VisitFields(record, JsonReader(json, "", failure));
  if (!failure.ok()) return absl::InvalidArgumentError(StrCat(what, ": ", failure));
  return record;
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_JSON_FIELDS_H_
