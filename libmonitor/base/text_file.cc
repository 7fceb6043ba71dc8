#include "base/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  const auto error = [&] {
    return absl::ErrnoToStatus(errno, StrCat("cannot read ", Quoted(path)));
  };
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return error();
  const absl::Cleanup closed = [file] { close(file); };
  std::string text;
  std::string chunk(size_t{1} << 16, '\0');
  while (true) {
    const ssize_t got = read(file, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error();
    if (got == 0) return text;
    text.append(chunk, 0, static_cast<size_t>(got));
    if (static_cast<int64_t>(text.size()) > kMaxTextBytes) {
      return absl::ResourceExhaustedError(
          StrCat(Quoted(path), " has more than ", kMaxTextBytes, " bytes"));
    }
  }
}

}  // namespace ptqwatch::internal
