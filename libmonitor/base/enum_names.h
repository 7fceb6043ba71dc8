#ifndef PTQWATCH_BASE_ENUM_NAMES_H_
#define PTQWATCH_BASE_ENUM_NAMES_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/strings.h"

namespace ptqwatch::internal {

/// "a, b and c": the names that ToString gives `values`.
template <typename Enum, size_t kCount>
std::string NamesOf(const Enum (&values)[kCount]) {
  std::string text;
  for (size_t i = 0; i < kCount; ++i) {
    text += StrCat(i == 0 ? "" : i + 1 == kCount ? " and " : ", ", ToString(values[i]));
  }
  return text;
}

/// The first of `values` whose ToString is `name`. Otherwise InvalidArgument: "unknown `what`
/// 'name'; known are a, b and c".
template <typename Enum, size_t kCount>
absl::StatusOr<Enum> ParseEnum(std::string_view what, const Enum (&values)[kCount],
                               std::string_view name) {
  for (const Enum value : values) {
    if (name == ToString(value)) return value;
  }
  return absl::InvalidArgumentError(
      StrCat("unknown ", what, " '", name, "'; known are ", NamesOf(values)));
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_ENUM_NAMES_H_
