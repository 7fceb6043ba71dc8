#ifndef PTQWATCH_PROTO_CONVERSION_MESSAGE_FIELDS_H_
#define PTQWATCH_PROTO_CONVERSION_MESSAGE_FIELDS_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "ptqwatch/status.h"
#include "report/enum_names.h"

// Converts records with VisitFields to messages and back. Fields are found by name, so a new member
// needs a line in its VisitFields and one in the .proto, but none here.

namespace ptqwatch::internal {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;

/// The prefix of the values of an enum: "LR_PHASE_" for LrPhase, from LR_PHASE_UNSPECIFIED.
inline std::string_view EnumPrefix(const EnumDescriptor& type) {
  std::string_view name = type.value(0)->name();
  name.remove_suffix(std::string_view("UNSPECIFIED").size());
  return name;
}

/// Whether a member is a repeated field or a map.
template <typename T>
constexpr bool kRepeated = false;
template <typename T>
constexpr bool kRepeated<std::vector<T>> = true;
template <size_t kCount>
constexpr bool kRepeated<std::array<int64_t, kCount>> = true;
template <typename Enum, size_t kCount>
constexpr bool kRepeated<Counts<Enum, kCount>> = true;
template <>
constexpr bool kRepeated<std::map<std::string, double>> = true;

template <typename T>
constexpr FieldDescriptor::CppType kCppType =
    std::is_same_v<T, bool>          ? FieldDescriptor::CPPTYPE_BOOL
    : std::is_same_v<T, int32_t>     ? FieldDescriptor::CPPTYPE_INT32
    : std::is_same_v<T, int64_t>     ? FieldDescriptor::CPPTYPE_INT64
    : std::is_same_v<T, double>      ? FieldDescriptor::CPPTYPE_DOUBLE
    : std::is_same_v<T, std::string> ? FieldDescriptor::CPPTYPE_STRING
    : std::is_enum_v<T>              ? FieldDescriptor::CPPTYPE_ENUM
                                     : FieldDescriptor::CPPTYPE_MESSAGE;
template <typename T>
constexpr FieldDescriptor::CppType kCppType<std::optional<T>> =
    std::is_enum_v<T> ? FieldDescriptor::CPPTYPE_STRING : kCppType<T>;  // the enum's name
template <>
constexpr FieldDescriptor::CppType kCppType<std::vector<std::string>> =
    FieldDescriptor::CPPTYPE_STRING;
template <size_t kCount>
constexpr FieldDescriptor::CppType kCppType<std::array<int64_t, kCount>> =
    FieldDescriptor::CPPTYPE_INT64;

/// Whether a member is a single nested record.
template <typename T>
constexpr bool kIsRecord = kCppType<T> == FieldDescriptor::CPPTYPE_MESSAGE && !kRepeated<T>;
template <typename T>
constexpr bool kIsRecord<std::optional<T>> = false;

/// Returns the field for a member of type T, or null if the message has none of that type: its
/// value is then left out, as protobuf's reflection would abort. A test compares the two lists. An
/// enum may also be a string field.
template <typename T>
const FieldDescriptor* FindField(const google::protobuf::Message& message, const char* key) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(key);
  if (field == nullptr || field->is_repeated() != kRepeated<T>) return nullptr;
  const bool by_name = std::is_enum_v<T> && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  return by_name || field->cpp_type() == kCppType<T> ? field : nullptr;
}

/// Writes the members of a record as fields of a message. If the message has no field for a nested
/// record, the members of that record become fields of the message itself. Absent and non-finite
/// values are left out; bytes that are not UTF-8 become U+FFFD.
class MessageWriter {
 public:
  explicit MessageWriter(google::protobuf::Message* message, bool with_layers = true)
      : message_(*message), reflection_(*message->GetReflection()), with_layers_(with_layers) {}

  template <typename T>
  void operator()(const char* key, const T& value) {
    const std::string_view name = key;
    if (!with_layers_ &&
        (name == "layers" || name == "skipped_layers" || name == "parameter_digests")) {
      return;
    }
    if (const FieldDescriptor* field = FindField<T>(message_, key)) {
      Write(field, value);
    } else if constexpr (kIsRecord<T>) {
      VisitFields(value, *this);
    }
  }

 private:
  template <typename T>
  void Write(const FieldDescriptor* field, const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      reflection_.SetBool(&message_, field, value);
    } else if constexpr (std::is_same_v<T, int32_t>) {
      reflection_.SetInt32(&message_, field, value);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      reflection_.SetInt64(&message_, field, value);
    } else if constexpr (std::is_same_v<T, double>) {
      if (std::isfinite(value)) reflection_.SetDouble(&message_, field, value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      reflection_.SetString(&message_, field, ValidUtf8(value));
    } else if constexpr (std::is_enum_v<T>) {
      WriteEnum(field, std::string(ToString(value)));
    } else {
      VisitFields(value, MessageWriter(reflection_.MutableMessage(&message_, field), with_layers_));
    }
  }
  template <typename T>
  void Write(const FieldDescriptor* field, const std::optional<T>& value) {
    if constexpr (std::is_enum_v<T>) {
      reflection_.SetString(&message_, field, std::string(ToString(value)));
    } else if (value) {
      Write(field, *value);
    }
  }
  template <typename T>
  void Write(const FieldDescriptor* field, const std::vector<T>& values) {
    for (const T& value : values) {
      VisitFields(value, MessageWriter(reflection_.AddMessage(&message_, field), with_layers_));
    }
  }
  void Write(const FieldDescriptor* field, const std::vector<std::string>& values) {
    for (const std::string& value : values) {
      reflection_.AddString(&message_, field, ValidUtf8(value));
    }
  }
  void Write(const FieldDescriptor* field, const std::map<std::string, double>& values) {
    for (const auto& [key, value] : values) {
      if (!std::isfinite(value)) continue;
      MessageWriter entry(reflection_.AddMessage(&message_, field), with_layers_);
      entry("key", key);
      entry("value", value);
    }
  }
  template <size_t kCount>
  void Write(const FieldDescriptor* field, const std::array<int64_t, kCount>& values) {
    for (const int64_t value : values) reflection_.AddInt64(&message_, field, value);
  }
  template <typename Enum, size_t kCount>
  void Write(const FieldDescriptor* field, const Counts<Enum, kCount>& counts) {
    for (size_t i = 0; i < kCount; ++i) {
      MessageWriter entry(reflection_.AddMessage(&message_, field));
      entry("key", std::string(ToString(static_cast<Enum>(i))));
      entry("value", counts[i]);
    }
  }
  void WriteEnum(const FieldDescriptor* field, const std::string& name) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      return reflection_.SetString(&message_, field, name);
    }
    const EnumDescriptor& type = *field->enum_type();
    const EnumValueDescriptor* named =
        type.FindValueByName(StrCat(EnumPrefix(type), absl::AsciiStrToUpper(name)));
    if (named != nullptr) reflection_.SetEnum(&message_, field, named);
  }

  google::protobuf::Message& message_;
  const google::protobuf::Reflection& reflection_;
  const bool with_layers_;
};

/// Reads a message written by MessageWriter of this or another version.
class MessageReader {
 public:
  /// Sets `*unknown_name` to true if an enum has an unknown value, which is read as the default.
  explicit MessageReader(const google::protobuf::Message& message, bool* unknown_name = nullptr)
      : message_(message), reflection_(*message.GetReflection()), unknown_name_(unknown_name) {}

  template <typename T>
  void operator()(const char* key, T& value) {
    if (const FieldDescriptor* field = FindField<T>(message_, key)) {
      Read(field, value);
    } else if constexpr (kIsRecord<T>) {
      VisitFields(value, *this);
    }
  }

 private:
  bool IsAbsent(const FieldDescriptor* field) const {
    return field->has_presence() && !reflection_.HasField(message_, field);
  }
  template <typename T>
  void Read(const FieldDescriptor* field, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = reflection_.GetBool(message_, field);
    } else if constexpr (std::is_same_v<T, int32_t>) {
      if (!IsAbsent(field)) value = reflection_.GetInt32(message_, field);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      if (!IsAbsent(field)) value = reflection_.GetInt64(message_, field);
    } else if constexpr (std::is_same_v<T, double>) {
      value = IsAbsent(field) ? std::numeric_limits<double>::quiet_NaN()
                              : reflection_.GetDouble(message_, field);
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = reflection_.GetString(message_, field);
    } else if constexpr (std::is_enum_v<T>) {
      const std::string name = EnumNameIn(field);
      ReadName(name, value);
      if (unknown_name_ != nullptr && ToString(value) != name) *unknown_name_ = true;
    } else {
      VisitFields(value, MessageReader(reflection_.GetMessage(message_, field), unknown_name_));
    }
  }
  template <typename T>
  void Read(const FieldDescriptor* field, std::optional<T>& value) {
    value.reset();
    if constexpr (std::is_enum_v<T>) {
      ReadName(reflection_.GetString(message_, field), value);
    } else if (reflection_.HasField(message_, field)) {
      Read(field, value.emplace());
    }
  }
  template <typename T>
  void Read(const FieldDescriptor* field, std::vector<T>& values) {
    const int size = reflection_.FieldSize(message_, field);
    values.assign(static_cast<size_t>(size), T{});
    for (int i = 0; i < size; ++i) {
      VisitFields(values[static_cast<size_t>(i)],
                  MessageReader(reflection_.GetRepeatedMessage(message_, field, i)));
    }
  }
  void Read(const FieldDescriptor* field, std::vector<std::string>& values) {
    values.clear();
    for (int i = 0; i < reflection_.FieldSize(message_, field); ++i) {
      values.push_back(reflection_.GetRepeatedString(message_, field, i));
    }
  }
  void Read(const FieldDescriptor* field, std::map<std::string, double>& values) {
    values.clear();
    for (int i = 0; i < reflection_.FieldSize(message_, field); ++i) {
      MessageReader entry(reflection_.GetRepeatedMessage(message_, field, i));
      std::string key;
      double value = 0;
      entry("key", key);
      entry("value", value);
      values[key] = value;
    }
  }
  template <size_t kCount>
  void Read(const FieldDescriptor* field, std::array<int64_t, kCount>& values) {
    const auto size = static_cast<size_t>(reflection_.FieldSize(message_, field));
    for (size_t i = 0; i < std::min(size, kCount); ++i) {
      values[i] = reflection_.GetRepeatedInt64(message_, field, static_cast<int>(i));
    }
  }
  template <typename Enum, size_t kCount>
  void Read(const FieldDescriptor* field, Counts<Enum, kCount>& counts) {
    for (int i = 0; i < reflection_.FieldSize(message_, field); ++i) {
      MessageReader entry(reflection_.GetRepeatedMessage(message_, field, i));
      std::string name;
      int64_t count = 0;
      entry("key", name);
      entry("value", count);
      for (size_t value = 0; value < kCount; ++value) {
        if (ToString(static_cast<Enum>(value)) == name) counts[value] = count;
      }
    }
  }
  // The name in lower case without the prefix; empty for an unknown number.
  std::string EnumNameIn(const FieldDescriptor* field) const {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      return reflection_.GetString(message_, field);
    }
    const EnumDescriptor& type = *field->enum_type();
    const EnumValueDescriptor* named =
        type.FindValueByNumber(reflection_.GetEnumValue(message_, field));
    if (named == nullptr) return "";
    return absl::AsciiStrToLower(named->name().substr(EnumPrefix(type).size()));
  }

  const google::protobuf::Message& message_;
  const google::protobuf::Reflection& reflection_;
  bool* const unknown_name_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_CONVERSION_MESSAGE_FIELDS_H_
