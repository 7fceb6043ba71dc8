#ifndef PTQWATCH_BASE_STRINGS_H_
#define PTQWATCH_BASE_STRINGS_H_

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ptqwatch::internal {

/// A status's message as a std::string_view. Debian's abseil is built for C++14 and has its own
/// string_view type.
inline std::string_view Message(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

/// Converts `arg` for abseil's formatting: std::string_view to absl::string_view, a status to its
/// message, other types unchanged.
template <typename Arg>
decltype(auto) Formattable(const Arg& arg) {
  using Decayed = std::decay_t<Arg>;
  if constexpr (std::is_same_v<Decayed, std::string_view>) {
    return absl::string_view(arg.data(), arg.size());
  } else if constexpr (std::is_same_v<Decayed, absl::Status>) {
    return arg.message();
  } else {
    return (arg);
  }
}

/// Concatenates the arguments, like absl::StrCat, and also takes std::string_view and absl::Status
/// (its message).
template <typename... Args>
std::string StrCat(const Args&... args) {
  return absl::StrCat(Formattable(args)...);
}

/// Formats like printf with checked types, for columns and digits, like absl::StrFormat, and also
/// takes std::string_view and absl::Status (its message).
template <typename... Args>
std::string StrFormat(
    const absl::FormatSpec<std::decay_t<decltype(Formattable(std::declval<const Args&>()))>...>&
        format,
    const Args&... args) {
  return absl::StrFormat(format, Formattable(args)...);
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_STRINGS_H_
