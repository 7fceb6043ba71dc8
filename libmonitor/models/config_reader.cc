#include "models/config_reader.h"

#include <cmath>

#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

using nlohmann::json;

constexpr size_t kMaxValueText = 60;

std::string ValueText(const json& value) {
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kMaxValueText) {
    text.resize(ValidUtf8Prefix(std::string_view(text).substr(0, kMaxValueText)));
    text += "...";
  }
  return text;
}

bool IsPositive(const json& value) {
  return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0;
}

}  // namespace

const json* ConfigReader::Find(std::string_view key) const {
  const auto found = object_->find(std::string(key));
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::IsNull(std::string_view key) const {
  const auto found = object_->find(std::string(key));
  return found != object_->end() && found->is_null();
}

bool ConfigReader::IsOff(std::string_view key) const {
  const json* value = Find(key);
  return value == nullptr || *value == false;
}

absl::Status ConfigReader::Error(std::string_view key, std::string_view what) const {
  return absl::InvalidArgumentError(StrCat(Quoted(path_), ": ", prefix_, key, " ", what));
}

absl::Status ConfigReader::WrongValue(std::string_view key, std::string_view need) const {
  const json* value = Find(key);
  if (value == nullptr) return Error(key, StrCat("is missing; ", need));
  return Error(key, StrCat("is ", ValueText(*value), "; ", need));
}

absl::StatusOr<int64_t> ConfigReader::Size(std::string_view key, std::optional<int64_t> fallback,
                                           int64_t min, int64_t max) const {
  const json* value = Find(key);
  if (value == nullptr && fallback) return *fallback;
  // A number beyond int64 is negative as one.
  if (value == nullptr || !value->is_number_integer() || value->get<int64_t>() < min ||
      value->get<int64_t>() > max) {
    return WrongValue(key, StrCat("an integer from ", min, " to ", max, " is needed"));
  }
  return value->get<int64_t>();
}

absl::StatusOr<double> ConfigReader::Positive(std::string_view key,
                                              std::optional<double> fallback) const {
  const json* value = Find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr || !IsPositive(*value)) {
    return WrongValue(key, "a number above 0 is needed");
  }
  return value->get<double>();
}

absl::StatusOr<bool> ConfigReader::Flag(std::string_view key, bool fallback) const {
  const json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return WrongValue(key, "true or false is needed");
  return value->get<bool>();
}

absl::StatusOr<std::string> ConfigReader::Text(std::string_view key,
                                               std::optional<std::string_view> fallback) const {
  const json* value = Find(key);
  if (value == nullptr && fallback) return std::string(*fallback);
  if (value == nullptr || !value->is_string()) return WrongValue(key, "a string is needed");
  return value->get<std::string>();
}

absl::StatusOr<std::vector<std::string>> ConfigReader::Texts(std::string_view key) const {
  std::vector<std::string> texts;
  const json* value = Find(key);
  if (value == nullptr) return texts;
  const absl::Status wrong = WrongValue(key, "an array of strings is needed");
  if (!value->is_array()) return wrong;
  for (const json& element : *value) {
    if (!element.is_string()) return wrong;
    texts.push_back(element.get<std::string>());
  }
  return texts;
}

absl::StatusOr<std::vector<bool>> ConfigReader::Bits(std::string_view key) const {
  std::vector<bool> bits;
  const json* value = Find(key);
  if (value == nullptr) return bits;
  const absl::Status wrong = WrongValue(key, "an array of 0 and 1 is needed");
  if (!value->is_array()) return wrong;
  for (const json& element : *value) {
    if (element.is_boolean()) {
      bits.push_back(element.get<bool>());
    } else if (element == 0 || element == 1) {
      bits.push_back(element == 1);
    } else {
      return wrong;
    }
  }
  return bits;
}

absl::StatusOr<std::vector<double>> ConfigReader::Positives(std::string_view key) const {
  std::vector<double> numbers;
  const json* value = Find(key);
  if (value == nullptr) return numbers;
  const absl::Status wrong = WrongValue(key, "an array of numbers above 0 is needed");
  if (!value->is_array()) return wrong;
  for (const json& element : *value) {
    if (!IsPositive(element)) return wrong;
    numbers.push_back(element.get<double>());
  }
  return numbers;
}

absl::StatusOr<std::vector<int64_t>> ConfigReader::Places(std::string_view key) const {
  std::vector<int64_t> places;
  const json* value = Find(key);
  if (value == nullptr) return places;
  const absl::Status wrong = WrongValue(key, "an array of integers from 0 is needed");
  if (!value->is_array()) return wrong;
  for (const json& element : *value) {
    if (!element.is_number_unsigned()) return wrong;
    places.push_back(element.get<int64_t>());
  }
  return places;
}

absl::StatusOr<std::optional<ConfigReader>> ConfigReader::Object(std::string_view key) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) return WrongValue(key, "an object is needed");
  if (value->empty()) return std::nullopt;
  return ConfigReader(*value, path_, StrCat(prefix_, key, "."));
}

}  // namespace ptqwatch::internal
