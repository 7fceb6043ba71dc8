#ifndef PTQWATCH_BASE_UTF8_H_
#define PTQWATCH_BASE_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "ptqwatch/config.h"

namespace ptqwatch::internal {

bool IsUtf8(std::string_view text);

/// How many bytes at the front of `text` are UTF-8; all of them where IsUtf8.
PTQWATCH_EXPORT size_t ValidUtf8Prefix(std::string_view text);

/// `text` with each ill-formed sequence (its longest prefix that could begin a character, or one
/// byte) replaced by U+FFFD, as JSON writers do.
PTQWATCH_EXPORT std::string ValidUtf8(std::string_view text);

/// Text from elsewhere made safe for a terminal: control characters become '?', so that nothing in
/// it can move the cursor, and broken UTF-8 becomes U+FFFD.
PTQWATCH_EXPORT std::string Printable(std::string_view text);

/// A name or path as a message may show it: in single quotes, what is not printable escaped, cut to
/// 200 bytes.
PTQWATCH_EXPORT std::string Quoted(std::string_view name);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_UTF8_H_
