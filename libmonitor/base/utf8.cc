#include "base/utf8.h"

#include <utf8/checked.h>

#include <iterator>

#include "absl/strings/escaping.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kMaxShownBytes = 200;

}  // namespace

bool IsUtf8(std::string_view text) { return utf8::is_valid(text.begin(), text.end()); }

size_t ValidUtf8Prefix(std::string_view text) {
  return static_cast<size_t>(utf8::find_invalid(text.begin(), text.end()) - text.begin());
}

std::string ValidUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  utf8::replace_invalid(text.begin(), text.end(), std::back_inserter(valid));
  return valid;
}

std::string Quoted(std::string_view name) {
  const std::string_view shown = name.substr(0, kMaxShownBytes);
  const absl::string_view bytes(shown.data(), shown.size());
  return StrCat("'", IsUtf8(shown) ? absl::Utf8SafeCHexEscape(bytes) : absl::CHexEscape(bytes),
                shown.size() < name.size() ? "..." : "", "'");
}

}  // namespace ptqwatch::internal
