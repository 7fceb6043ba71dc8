#include "base/utf8.h"

#include <utf8/checked.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kMaxShownBytes = 200;

// Length of the ill-formed sequence at the front of `text`: its longest prefix that could begin a
// character, or one byte (the Unicode standard's "maximal subpart").
size_t IllFormedPrefix(std::string_view text) {
  for (size_t length = std::min<size_t>(text.size(), 3); length > 1; --length) {
    std::string begun(text.substr(0, length));
    for (size_t missing = 1; missing + length <= 4; ++missing) {
      begun += '\x80';
      if (IsUtf8(begun)) return length;
    }
  }
  return 1;
}

}  // namespace

bool IsUtf8(std::string_view text) { return utf8::is_valid(text.begin(), text.end()); }

size_t ValidUtf8Prefix(std::string_view text) {
  return static_cast<size_t>(utf8::find_invalid(text.begin(), text.end()) - text.begin());
}

std::string ValidUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (true) {
    const size_t good = ValidUtf8Prefix(text);
    valid += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty()) return valid;
    valid += "\uFFFD";
    text.remove_prefix(IllFormedPrefix(text));
  }
}

std::string Printable(std::string_view text) {
  std::string printable;
  for (const char c : ValidUtf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool c1 = byte >= 0x80 && byte < 0xA0 && printable.ends_with('\xC2');
    if (c1) printable.pop_back();
    printable += c1 || byte < 0x20 || byte == 0x7F ? '?' : c;
  }
  return printable;
}

std::string Quoted(std::string_view name) {
  const std::string_view shown = name.substr(0, kMaxShownBytes);
  const absl::string_view bytes(shown.data(), shown.size());
  return StrCat("'", IsUtf8(shown) ? absl::Utf8SafeCHexEscape(bytes) : absl::CHexEscape(bytes),
                shown.size() < name.size() ? "..." : "", "'");
}

}  // namespace ptqwatch::internal
