#ifndef PTQWATCH_BASE_GLOB_H_
#define PTQWATCH_BASE_GLOB_H_

#include <string_view>

namespace ptqwatch::internal {

/// Shell-style match of the whole text: '*' is any run of characters ('.' included), '?' any one.
bool GlobMatch(std::string_view pattern, std::string_view text);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_GLOB_H_
