#include "report/json_fields.h"

namespace ptqwatch::internal {
namespace {

// Far more levels than a report has.
constexpr int kDeepest = 32;

bool NestsTooDeep(std::string_view json) {
  int depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_text) {
      if (c == '\\') ++i;
      in_text = c != '"';
    } else if (c == '"') {
      in_text = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

std::string JsonText(const WrittenJson& json) {
  return json.dump(-1, ' ', false, WrittenJson::error_handler_t::replace);
}

absl::StatusOr<nlohmann::json> ParseJson(std::string_view what, std::string_view text) {
  if (NestsTooDeep(text)) return absl::InvalidArgumentError(StrCat(what, ": nested too deep"));
  nlohmann::json parsed = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return absl::InvalidArgumentError(StrCat(what, ": malformed"));
  return parsed;
}

}  // namespace ptqwatch::internal
