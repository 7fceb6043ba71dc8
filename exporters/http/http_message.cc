#include "http/http_message.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"

namespace ptqwatch::internal {
namespace {

bool IsHexPair(std::string_view text) {
  return text.size() >= 2 && absl::ascii_isxdigit(static_cast<unsigned char>(text[0])) &&
         absl::ascii_isxdigit(static_cast<unsigned char>(text[1]));
}

// Keeps a '%' that is not followed by two hexadecimal digits.
std::string PercentDecode(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && IsHexPair(text.substr(i + 1))) {
      decoded += absl::HexStringToBytes({text.data() + i + 1, 2});
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

std::string DecodeParameter(std::string text) {
  for (char& c : text) {
    if (c == '+') c = ' ';
  }
  return PercentDecode(text);
}

}  // namespace

void SetTarget(HttpRequest& request, std::string_view target) {
  const size_t question = target.find('?');
  request.path = PercentDecode(target.substr(0, question));
  request.parameters.clear();
  if (question == std::string_view::npos) return;
  const std::string query(target.substr(question + 1));
  for (const absl::string_view pair : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    std::pair<std::string, std::string> parts = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    request.parameters.emplace(DecodeParameter(std::move(parts.first)),
                               DecodeParameter(std::move(parts.second)));
  }
}

}  // namespace ptqwatch::internal
