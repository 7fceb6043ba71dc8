#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nlohmann/json.hpp"
#include "ptqwatch/event.h"
#include "ptqwatch/report.h"
#include "report/enum_names.h"
#include "report/report_fields.h"

namespace ptqwatch {
namespace {

using internal::StrCat;
using internal::VisitFields;

// Keeps the order of the field list: a line goes from the general to the particular.
using WrittenJson = nlohmann::ordered_json;

struct Writer {
  WrittenJson object = WrittenJson::object();

  template <typename T>
  void operator()(const char* key, const T& value) {
    if (std::optional<WrittenJson> json = Write(value)) object[key] = *std::move(json);
  }

  // nullopt: the key is left out.
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
      Writer writer;
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
  static std::optional<WrittenJson> Write(const std::map<std::string, double>& values) {
    WrittenJson members = WrittenJson::object();
    for (const auto& [key, value] : values) {
      if (std::isfinite(value)) members[key] = value;
    }
    return members;
  }
};

// Reads the keys that are present; stops at the first value of the wrong type.
class Reader {
 public:
  Reader(const nlohmann::json& object, std::string path, absl::Status& status)
      : object_(object), path_(std::move(path)), status_(status) {
    if (!object.is_object()) Fail(path_, "an object", object);
  }

  template <typename T>
  void operator()(const char* key, T& value) {
    if (!status_.ok()) return;
    const auto found = object_.find(key);
    if (found == object_.end()) return;
    Read(path_.empty() ? std::string(key) : StrCat(path_, ".", key), *found, value);
  }

 private:
  void Fail(const std::string& path, std::string_view expected, const nlohmann::json& json) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(StrCat("report JSON: ", path.empty() ? "line" : path,
                                                " must be ", expected, ", is ", json.type_name()));
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
      internal::ReadName(json.get_ref<const std::string&>(), value);
    } else {
      VisitFields(value, Reader(json, path, status_));
    }
  }
  template <typename T>
  void Read(const std::string& path, const nlohmann::json& json, std::optional<T>& value) {
    if (json.is_null()) return value.reset();
    if constexpr (std::is_enum_v<T>) {
      if (!json.is_string()) return Fail(path, "a string", json);
      internal::ReadName(json.get_ref<const std::string&>(), value);
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
};

// Far more than a report has. A parsed bracket takes a hundred times its byte.
constexpr int kDeepest = 32;

bool NestsTooDeep(std::string_view json) {
  int depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_text) {
      if (c == '\\') ++i;
      in_text = c != '"';
    } else if (c == '"') {
      in_text = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

absl::StatusOr<nlohmann::json> Parse(std::string_view what, std::string_view text) {
  if (NestsTooDeep(text)) return absl::InvalidArgumentError(StrCat(what, ": nested too deep"));
  nlohmann::json parsed = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return absl::InvalidArgumentError(StrCat(what, ": malformed"));
  return parsed;
}

}  // namespace

std::string ToJson(const AnalyzedReport& report) {
  // Names come from the trainer. Bytes that are not UTF-8 become U+FFFD, not an exception.
  return Writer::Write(report)->dump(-1, ' ', false, WrittenJson::error_handler_t::replace);
}

std::string EventToJson(const Event& event) {
  WrittenJson line;
  line["event"] = *Writer::Write(event);
  return line.dump(-1, ' ', false, WrittenJson::error_handler_t::replace);
}

bool IsEventJson(std::string_view line) { return line.starts_with("{\"event\":"); }

absl::StatusOr<Event> EventFromJson(std::string_view line) {
  return internal::Guard(
      "event JSON", absl::StatusCode::kInvalidArgument, [&]() -> absl::StatusOr<Event> {
        PTQWATCH_ASSIGN_OR_RETURN(const nlohmann::json parsed, Parse("event JSON", line));
        const nlohmann::json& fields = parsed.at("event");
        Event event;
        absl::Status status;
        VisitFields(event, Reader(fields, "event", status));
        PTQWATCH_RETURN_IF_ERROR(status);
        PTQWATCH_ASSIGN_OR_RETURN(event.kind,
                                  ParseEventKind(fields.at("kind").get_ref<const std::string&>()));
        return event;
      });
}

absl::StatusOr<AnalyzedReport> FromJson(std::string_view json) {
  return internal::Guard(
      "report JSON", absl::StatusCode::kInvalidArgument, [&]() -> absl::StatusOr<AnalyzedReport> {
        PTQWATCH_ASSIGN_OR_RETURN(const nlohmann::json parsed, Parse("report JSON", json));
        if (parsed.contains("event")) {
          return absl::InvalidArgumentError("report JSON: an event, not a report");
        }
        AnalyzedReport report;
        absl::Status status;
        VisitFields(report, Reader(parsed, "", status));
        PTQWATCH_RETURN_IF_ERROR(status);
        return report;
      });
}

}  // namespace ptqwatch
