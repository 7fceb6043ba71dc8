#include "terminal.h"

#include <errno.h>
#include <langinfo.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/strings.h"
#include "printable.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kDefaultColumns = 80;
constexpr size_t kDefaultRows = 24;

// Writes all bytes, or returns false with errno set.
bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      // Another process that shares the descriptor has made it non-blocking.
      pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
      if (poll(&ready, 1, -1) < 0 && errno != EINTR) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool EnvironmentHas(const char* name, std::string_view value = {}) {
  const char* const found = getenv(name);
  return found != nullptr && (value.empty() ? *found != '\0' : found == value);
}

winsize Size(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) size = {};
  return size;
}

}  // namespace

Terminal::Terminal(int out_fd, int error_fd, bool terminal, TextStyle style, bool interactive)
    : out_fd_(out_fd),
      error_fd_(error_fd),
      terminal_(terminal),
      style_(style),
      interactive_(interactive) {}

Terminal Terminal::Standard() {
  const bool terminal = isatty(STDOUT_FILENO) != 0 && !EnvironmentHas("TERM", "dumb");
  const bool color = terminal && !EnvironmentHas("NO_COLOR");
  const bool utf8 = std::string_view(nl_langinfo(CODESET)) == "UTF-8";
  const bool interactive =
      terminal && isatty(STDIN_FILENO) != 0 && tcgetpgrp(STDIN_FILENO) == getpgrp();
  return Terminal(STDOUT_FILENO, STDERR_FILENO, terminal, {.utf8 = utf8, .color = color},
                  interactive);
}

Terminal::~Terminal() { Status(""); }

size_t Terminal::columns() const {
  const winsize size = Size(out_fd_);
  return size.ws_col == 0 ? kDefaultColumns : size.ws_col;
}

size_t Terminal::rows() const {
  const winsize size = Size(out_fd_);
  return size.ws_row == 0 ? kDefaultRows : size.ws_row;
}

void Terminal::Write(std::string_view bytes) {
  if (closed_ || bytes.empty() || WriteAll(out_fd_, bytes)) return;
  closed_ = true;
  if (errno != EPIPE && errno != EBADF) {
    error_ = absl::UnavailableError(StrCat("cannot write to standard output: ", strerror(errno)));
  }
}

void Terminal::Line(std::string_view text) { Block(StrCat(text, "\n")); }

void Terminal::JsonLine(const std::string& json) { Line(terminal_ ? PrintableJson(json) : json); }

void Terminal::Block(std::string_view text) {
  Write(status_.empty() ? std::string(text) : StrCat(kCleanTerminal, text, status_));
}

void Terminal::Notice(std::string_view text) {
  if (!status_.empty()) Write(kCleanTerminal);
  WriteAll(error_fd_, StrCat("ptqwatch: ", text, "\n"));
  Write(status_);
}

void Terminal::Status(std::string_view text) {
  if (!terminal_) return;
  const std::string_view erase = status_.empty() ? "" : kCleanTerminal;
  // Leaves one column free, because \r would not bring back a cursor that has wrapped.
  std::string next(CutToWidth(text, columns() - 1));
  if (next == status_) return;
  status_ = std::move(next);
  Write(StrCat(erase, status_));
}

bool Terminal::closed() const {
  if (closed_) return true;
  pollfd end{.fd = out_fd_, .events = 0, .revents = 0};
  return poll(&end, 1, 0) > 0 && (end.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
}

}  // namespace ptqwatch::internal
