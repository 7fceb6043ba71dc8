#include "report/layer_columns.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/strings.h"
#include "report/json_fields.h"

namespace ptqwatch::internal {
namespace {

class Columns {
 public:
  // Replaces the lists of records with names in `json` and below.
  void MakeIn(WrittenJson& json) {
    if (json.is_array()) {
      for (WrittenJson& element : json) MakeIn(element);
    }
    if (!json.is_object()) return;
    WrittenJson members = WrittenJson::object();
    for (auto& [key, value] : json.items()) {
      const bool by_name = value.is_array() && !value.empty() && value[0].contains("name");
      if (by_name) {
        members[key + kColumnsSuffix] = Of(value);
      } else {
        MakeIn(value);
        members[key] = std::move(value);
      }
    }
    json = std::move(members);
  }

  WrittenJson TakeNames() { return std::move(names_); }

 private:
  WrittenJson Of(WrittenJson& rows) {
    WrittenJson columns = WrittenJson::object();
    for (size_t row = 0; row < rows.size(); ++row) {
      for (auto& [key, value] : rows[row].items()) {
        WrittenJson& column = columns[key];
        while (column.size() < row) column.push_back(nullptr);
        column.push_back(key == "name" ? WrittenJson(IndexOf(value)) : Shortened(value));
      }
    }
    for (auto& [key, column] : columns.items()) {
      while (column.size() < rows.size()) column.push_back(nullptr);
      if (key == "name") {
        size_t next = 0;
        const auto follows = [&](const WrittenJson& index) { return index == next++; };
        if (std::all_of(column.begin(), column.end(), follows)) column = rows.size();
        continue;
      }
      const auto is_first = [&first = column[0]](const WrittenJson& value) {
        return value == first;
      };
      const bool shared = std::all_of(column.begin(), column.end(), is_first);
      if (shared) column = WrittenJson(column[0]);
      for (const auto& [earlier, values] : columns.items()) {
        if (earlier == key) break;
        if (column.is_array() && Same(values, column)) column = earlier;
      }
    }
    return columns;
  }

  size_t IndexOf(const WrittenJson& name) {
    const auto [known, added] = index_of_.try_emplace(name.get<std::string>(), names_.size());
    if (added) names_.push_back(name);
    return known->second;
  }

  // Also of the same types: 0 equals 0.0, but is read as an integer.
  static bool Same(const WrittenJson& one, const WrittenJson& other) {
    return one == other && std::equal(one.begin(), one.end(), other.begin(),
                                      [](const WrittenJson& a, const WrittenJson& b) {
                                        return a.type() == b.type();
                                      });
  }

  static WrittenJson Shortened(WrittenJson& value) {
    if (!value.is_number_float()) return std::move(value);
    // Not strtod, which obeys the locale of the trainer's process.
    const std::string digits = StrFormat("%.2e", value.get<double>());
    double shortened = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), shortened);
    return shortened;
  }

  WrittenJson names_ = WrittenJson::array();
  std::unordered_map<std::string, size_t> index_of_;
};

}  // namespace

std::string ToColumnJson(const AnalyzedReport& report) {
  WrittenJson json = *JsonWriter::Write(report);
  Columns columns;
  columns.MakeIn(json);
  if (WrittenJson names = columns.TakeNames(); !names.empty()) {
    json[std::string(kNamesKey)] = std::move(names);
  }
  return JsonText(json);
}

}  // namespace ptqwatch::internal
