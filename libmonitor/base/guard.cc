#include "base/guard.h"

#include <initializer_list>
#include <new>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kTrace = "\nException raised from ";

bool SaysOutOfMemory(std::string_view text) {
  for (const std::string_view sign :
       {"can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED"}) {
    if (text.find(sign) != std::string_view::npos) return true;
  }
  return false;
}

absl::Status Made(std::string_view what, absl::StatusCode code, std::string_view text) {
  return absl::Status(code, what.empty() ? StrCat(text) : StrCat(what, ": ", text));
}

}  // namespace

std::string ErrorText(const std::exception& error) {
  const std::string_view text = error.what();
  return std::string(text.substr(0, text.find(kTrace)));
}

absl::Status CaughtStatus(std::string_view what, absl::StatusCode otherwise) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Made(what, absl::StatusCode::kResourceExhausted, "out of memory");
  } catch (const std::exception& error) {
    const std::string text = ErrorText(error);
    return Made(what, SaysOutOfMemory(text) ? absl::StatusCode::kResourceExhausted : otherwise,
                text);
  } catch (...) {
    return Made(what, otherwise, "an exception not derived from std::exception was thrown");
  }
}

}  // namespace ptqwatch::internal
