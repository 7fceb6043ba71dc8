#ifndef PTQWATCH_BASE_GLOB_H_
#define PTQWATCH_BASE_GLOB_H_

#include <string_view>

namespace ptqwatch::internal {

/// Shell-style match of the whole text: '*' matches any run of characters (including '.'), '?' any
/// one character.
bool GlobMatch(std::string_view pattern, std::string_view text);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_GLOB_H_
