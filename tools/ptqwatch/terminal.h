#ifndef PTQWATCH_TOOLS_PTQWATCH_TERMINAL_H_
#define PTQWATCH_TOOLS_PTQWATCH_TERMINAL_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "report_table.h"

namespace ptqwatch::internal {

/// Removes a status line from the screen and resets colours; a signal handler writes it.
inline constexpr std::string_view kCleanTerminal = "\r\x1b[K\x1b[0m";

/// Standard output and standard error: whole lines, written at once, and on a terminal a status
/// line below them that is redrawn in place. A reader that is gone makes it closed(), which is no
/// error. Not thread-safe. REQUIRES: SIGPIPE is ignored.
class Terminal {
 public:
  /// `terminal`: out_fd is a terminal that can move its cursor. The descriptors stay the caller's.
  Terminal(int out_fd, int error_fd, bool terminal, TextStyle style, bool interactive = false);
  /// For the environment: a terminal unless TERM is "dumb", colours there unless NO_COLOR is set,
  /// UTF-8 from the locale (setlocale must have been called).
  static Terminal Standard();
  /// Removes the status line.
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool terminal() const { return terminal_; }
  /// Keys come from it, too, and this process has it in the foreground: it can be a FullScreen.
  bool interactive() const { return interactive_; }
  TextStyle style() const { return style_; }
  /// Size of the terminal now; 80 and 24 if it is not known.
  size_t columns() const;
  size_t rows() const;

  void Line(std::string_view text);
  /// Several lines, each with its newline.
  void Block(std::string_view text);
  /// "ptqwatch: TEXT" on standard error.
  void Notice(std::string_view text);
  /// Replaces the status line, cut to the width of the terminal. Without a terminal it does
  /// nothing.
  void Status(std::string_view text);

  /// The reader is gone: the other end of the pipe is closed.
  bool closed() const;
  /// OK, or why the output is incomplete, for example a full disk. OK when closed().
  const absl::Status& error() const { return error_; }

 private:
  void Write(std::string_view bytes);

  const int out_fd_;
  const int error_fd_;
  const bool terminal_;
  const TextStyle style_;
  const bool interactive_;
  std::string status_;
  bool closed_ = false;
  absl::Status error_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_TERMINAL_H_
