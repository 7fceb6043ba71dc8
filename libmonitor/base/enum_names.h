#ifndef PTQWATCH_BASE_ENUM_NAMES_H_
#define PTQWATCH_BASE_ENUM_NAMES_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/strings.h"

namespace ptqwatch::internal {

/// The names of an enum's values: element i is the name of the value i. Every enum of the public
/// API is written and read with such a list.
using EnumNames = absl::Span<const std::string_view>;

/// The name of `value`, or "unknown" if it has none.
template <typename Enum>
std::string_view EnumName(EnumNames names, Enum value) {
  const auto index = static_cast<size_t>(value);
  return index < names.size() ? names[index] : "unknown";
}

/// The value called `name`, if there is one.
template <typename Enum>
std::optional<Enum> EnumValue(EnumNames names, std::string_view name) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

/// Returns "a, b and c".
inline std::string ListOf(EnumNames names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += StrCat(i == 0 ? "" : i + 1 == names.size() ? " and " : ", ", names[i]);
  }
  return text;
}

/// Returns "unknown `kind` 'x'; known are a, b and c".
inline absl::Status UnknownName(std::string_view kind, EnumNames names, std::string_view name) {
  return absl::InvalidArgumentError(
      StrCat("unknown ", kind, " '", name, "'; known are ", ListOf(names)));
}

/// The value called `name`, or InvalidArgument listing the known names. `kind` tells in the message
/// what `name` refers to.
template <typename Enum>
absl::StatusOr<Enum> ParseEnum(std::string_view kind, EnumNames names, std::string_view name) {
  if (const std::optional<Enum> value = EnumValue<Enum>(names, name)) return *value;
  return UnknownName(kind, names, name);
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_ENUM_NAMES_H_
