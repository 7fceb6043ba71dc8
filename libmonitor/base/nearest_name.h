#ifndef PTQWATCH_BASE_NEAREST_NAME_H_
#define PTQWATCH_BASE_NEAREST_NAME_H_

#include <string_view>

#include "absl/types/span.h"

namespace ptqwatch::internal {

/// Returns the element of `names` with the smallest Levenshtein distance to `name` in bytes, the
/// first one if several are equal, or "" if `names` is empty. O(length^2) for each name.
std::string_view NearestName(std::string_view name, absl::Span<const std::string_view> names);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_NEAREST_NAME_H_
