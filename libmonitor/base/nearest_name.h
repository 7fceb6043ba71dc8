#ifndef PTQWATCH_BASE_NEAREST_NAME_H_
#define PTQWATCH_BASE_NEAREST_NAME_H_

#include <string_view>

#include "absl/types/span.h"

namespace ptqwatch::internal {

/// Of `names`, the one that takes the fewest insertions, deletions and replacements of a byte to
/// become `name` (Levenshtein distance); the first of several, empty where `names` is. O(length^2)
/// for each of them.
std::string_view NearestName(std::string_view name, absl::Span<const std::string_view> names);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_NEAREST_NAME_H_
