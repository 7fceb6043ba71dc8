#ifndef PTQWATCH_TOOLS_PTQWATCH_TERMINAL_H_
#define PTQWATCH_TOOLS_PTQWATCH_TERMINAL_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "report_table.h"

namespace ptqwatch::internal {

/// Removes a status line from the screen and resets colours; also written by a signal handler.
inline constexpr std::string_view kCleanTerminal = "\r\x1b[K\x1b[0m";

/// Standard output and standard error. Writes whole lines at once and, on a terminal, a status line
/// below them that is redrawn in place. If the reader has gone, it is closed(), which is not an
/// error. Not thread-safe. REQUIRES: SIGPIPE is ignored.
class Terminal {
 public:
  /// `terminal`: out_fd is a terminal that can move its cursor. The caller keeps the descriptors.
  Terminal(int out_fd, int error_fd, bool terminal, TextStyle style, bool interactive = false);
  /// Configured from the environment: a terminal unless TERM is "dumb", colours on it unless
  /// NO_COLOR is set, UTF-8 from the locale (setlocale must have been called).
  static Terminal Standard();
  /// Removes the status line.
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool terminal() const { return terminal_; }
  /// Input is the same terminal and this process is in its foreground, so it can be a FullScreen.
  bool interactive() const { return interactive_; }
  TextStyle style() const { return style_; }
  /// Current size of the terminal; 80 and 24 if unknown.
  size_t columns() const;
  size_t rows() const;

  void Line(std::string_view text);
  /// Prints a line of JSON; on a terminal it is PrintableJson.
  void JsonLine(const std::string& json);
  /// Prints several lines, each with its newline.
  void Block(std::string_view text);
  /// Prints "ptqwatch: TEXT" to standard error.
  void Notice(std::string_view text);
  /// Replaces the status line, cut to the width of the terminal. Does nothing without a terminal.
  void Status(std::string_view text);

  /// Whether the reader has gone, because the other end of the pipe is closed.
  bool closed() const;
  /// OK, or the reason why the output is incomplete, such as a full disk. OK when closed().
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
