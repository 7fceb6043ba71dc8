#include "client/client_security.h"

#include <cerrno>
#include <fstream>

#include "absl/status/status.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kMaxFile = size_t{1} << 20;

}  // namespace

absl::StatusOr<std::string> ReadSecret(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFile + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return absl::ErrnoToStatus(errno, StrCat("'", path, "' cannot be read"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty() || text.size() > kMaxFile) {
    return absl::InvalidArgumentError(
        StrCat("'", path, "' ", text.empty() ? "is empty" : "is larger than 1 MiB"));
  }
  return text;
}

}  // namespace ptqwatch::internal
