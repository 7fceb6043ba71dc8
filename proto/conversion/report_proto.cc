#include "report_proto.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <type_traits>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "report/enum_names.h"
#include "report/report_fields.h"

namespace ptqwatch::internal {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// "LR_PHASE_" of LrPhase, whose first value is LR_PHASE_UNSPECIFIED.
std::string_view Prefix(const EnumDescriptor& type) {
  std::string_view name = type.value(0)->name();
  name.remove_suffix(std::string_view("UNSPECIFIED").size());
  return name;
}

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

// Null where the message has no such field of that kind: the value is left out, since protobuf's
// reflection would end the process. A test compares the two lists.
template <typename T>
const FieldDescriptor* FindField(const Message& message, const char* key) {
  constexpr bool repeated = requires(T t) { t.clear(); }
  &&!std::is_same_v<T, std::string>;
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(key);
  if (field == nullptr || field->cpp_type() != kCppType<T> || field->is_repeated() != repeated) {
    return nullptr;
  }
  return field;
}

class Writer {
 public:
  Writer(Message* message, bool with_layers)
      : message_(*message), reflection_(*message->GetReflection()), with_layers_(with_layers) {}

  template <typename T>
  void operator()(const char* key, const T& value) {
    const std::string_view name = key;
    if (!with_layers_ && (name == "layers" || name == "skipped_layers")) return;
    if (const FieldDescriptor* field = FindField<T>(message_, key)) Write(field, value);
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
      const EnumDescriptor& type = *field->enum_type();
      const std::string_view lower = ToString(value);
      const EnumValueDescriptor* named = type.FindValueByName(StrCat(
          Prefix(type), absl::AsciiStrToUpper(absl::string_view(lower.data(), lower.size()))));
      if (named != nullptr) reflection_.SetEnum(&message_, field, named);
    } else {
      VisitFields(value, Writer(reflection_.MutableMessage(&message_, field), with_layers_));
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
      VisitFields(value, Writer(reflection_.AddMessage(&message_, field), with_layers_));
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
      Writer entry(reflection_.AddMessage(&message_, field), with_layers_);
      entry("key", key);
      entry("value", value);
    }
  }

  Message& message_;
  const Reflection& reflection_;
  const bool with_layers_;
};

class Reader {
 public:
  explicit Reader(const Message& message)
      : message_(message), reflection_(*message.GetReflection()) {}

  template <typename T>
  void operator()(const char* key, T& value) {
    if (const FieldDescriptor* field = FindField<T>(message_, key)) Read(field, value);
  }

 private:
  template <typename T>
  void Read(const FieldDescriptor* field, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = reflection_.GetBool(message_, field);
    } else if constexpr (std::is_same_v<T, int32_t>) {
      value = reflection_.GetInt32(message_, field);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      value = reflection_.GetInt64(message_, field);
    } else if constexpr (std::is_same_v<T, double>) {
      const bool known = !field->has_presence() || reflection_.HasField(message_, field);
      value =
          known ? reflection_.GetDouble(message_, field) : std::numeric_limits<double>::quiet_NaN();
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = reflection_.GetString(message_, field);
    } else if constexpr (std::is_enum_v<T>) {
      value = T{};
      const EnumDescriptor& type = *field->enum_type();
      const EnumValueDescriptor* named =
          type.FindValueByNumber(reflection_.GetEnumValue(message_, field));
      if (named == nullptr) return;
      const std::string name = absl::AsciiStrToLower(named->name().substr(Prefix(type).size()));
      for (int i = 0; i < type.value_count(); ++i) {
        if (ToString(static_cast<T>(i)) == name) value = static_cast<T>(i);
      }
    } else {
      VisitFields(value, Reader(reflection_.GetMessage(message_, field)));
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
                  Reader(reflection_.GetRepeatedMessage(message_, field, i)));
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
      Reader entry(reflection_.GetRepeatedMessage(message_, field, i));
      std::string key;
      double value = 0;
      entry("key", key);
      entry("value", value);
      values[key] = value;
    }
  }

  const Message& message_;
  const Reflection& reflection_;
};

}  // namespace

void ToProto(const AnalyzedReport& report, v1::Report* message, bool with_layers) {
  message->Clear();
  VisitFields(report, Writer(message, with_layers));
}

AnalyzedReport FromProto(const v1::Report& message) {
  AnalyzedReport report;
  VisitFields(report, Reader(message));
  return report;
}

}  // namespace ptqwatch::internal
