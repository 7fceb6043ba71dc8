#ifndef PTQWATCH_REPORT_STR_CAT_H_
#define PTQWATCH_REPORT_STR_CAT_H_

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace ptqwatch::internal {

/// absl::StrCat that also takes std::string_view: an abseil built for C++14 (Debian's) has a
/// string_view of its own, which does not convert from the standard one.
template <typename... Args>
std::string StrCat(const Args&... args) {
  const auto convert = [](const auto& arg) -> decltype(auto) {
    using Arg = std::decay_t<decltype(arg)>;
    if constexpr (std::is_same_v<Arg, std::string_view>) {
      return absl::string_view(arg.data(), arg.size());
    } else {
      return (arg);
    }
  };
  return absl::StrCat(convert(args)...);
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_STR_CAT_H_
