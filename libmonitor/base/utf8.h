#ifndef PTQWATCH_BASE_UTF8_H_
#define PTQWATCH_BASE_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "ptqwatch/config.h"

namespace ptqwatch::internal {

bool IsUtf8(std::string_view text);

/// Length in bytes of the longest prefix of `text` that is valid UTF-8; text.size() if IsUtf8.
PTQWATCH_EXPORT size_t ValidUtf8Prefix(std::string_view text);

/// Returns `text` with each ill-formed sequence (its longest prefix that could begin a character,
/// or one byte) replaced by U+FFFD, as JSON writers do.
PTQWATCH_EXPORT std::string ValidUtf8(std::string_view text);

/// Makes foreign text safe for a terminal: control characters become '?', so that they cannot move
/// the cursor, and broken UTF-8 becomes U+FFFD.
PTQWATCH_EXPORT std::string Printable(std::string_view text);

/// Formats a name or path for a message: in single quotes, with unprintable characters escaped, cut
/// to 200 bytes.
PTQWATCH_EXPORT std::string Quoted(std::string_view name);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_UTF8_H_
