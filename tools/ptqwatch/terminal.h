#ifndef PTQWATCH_TOOLS_PTQWATCH_TERMINAL_H_
#define PTQWATCH_TOOLS_PTQWATCH_TERMINAL_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "report_table.h"

namespace ptqwatch::internal {

/// Takes a status line off the screen and puts colours back; what a signal handler writes.
inline constexpr std::string_view kCleanTerminal = "\r\x1b[K\x1b[0m";

/// Standard output and standard error: whole lines, written at once, and on a terminal a status
/// line below them that is redrawn in place. A reader that has gone away is not an error but
/// closed(). SIGPIPE has to be ignored. Not thread-safe.
class Terminal {
 public:
  /// `terminal`: out_fd is one that can move its cursor. The descriptors stay the caller's.
  Terminal(int out_fd, int error_fd, bool terminal, TextStyle style);
  /// As the environment says: a terminal unless TERM is "dumb", colour there unless NO_COLOR is
  /// set, UTF-8 from the locale (setlocale must have been called).
  static Terminal Standard();
  /// Takes the status line away.
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool terminal() const { return terminal_; }
  TextStyle style() const { return style_; }
  /// Size of the terminal now; 80 and 24 where it is not known.
  size_t columns() const;
  size_t rows() const;

  void Line(std::string_view text);
  /// Text of several lines, each with its end.
  void Block(std::string_view text);
  /// "ptqwatch: TEXT" on standard error.
  void Notice(std::string_view text);
  /// Replaces the status line, cut to the width of the terminal; nothing where there is none.
  void Status(std::string_view text);

  /// Nobody can read what is written any more: the other end of the pipe is closed.
  bool closed() const;
  /// OK, or why the output is incomplete (a full disk); not for closed().
  const absl::Status& error() const { return error_; }

 private:
  void Write(std::string_view bytes);

  const int out_fd_;
  const int error_fd_;
  const bool terminal_;
  const TextStyle style_;
  std::string status_;
  bool closed_ = false;
  absl::Status error_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_TERMINAL_H_
