#ifndef PTQWATCH_TESTS_UNIT_TOOLS_CAPTURED_TERMINAL_H_
#define PTQWATCH_TESTS_UNIT_TOOLS_CAPTURED_TERMINAL_H_

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "terminal.h"

namespace ptqwatch::testing {

/// A Terminal whose output and error go to files in memory.
class CapturedTerminal {
 public:
  explicit CapturedTerminal(bool is_terminal = false, internal::TextStyle style = {.utf8 = true})
      : out_(memfd_create("out", 0)),
        error_(memfd_create("error", 0)),
        terminal_(out_, error_, is_terminal, style) {}
  ~CapturedTerminal() {
    close(out_);
    close(error_);
  }
  CapturedTerminal(const CapturedTerminal&) = delete;
  CapturedTerminal& operator=(const CapturedTerminal&) = delete;

  internal::Terminal* get() { return &terminal_; }
  std::string out() const { return Content(out_); }
  std::string error() const { return Content(error_); }

 private:
  static std::string Content(int fd) {
    std::string content(static_cast<size_t>(lseek(fd, 0, SEEK_END)), '\0');
    const ssize_t got = pread(fd, content.data(), content.size(), 0);
    content.resize(static_cast<size_t>(got));
    return content;
  }

  const int out_;
  const int error_;
  internal::Terminal terminal_;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_UNIT_TOOLS_CAPTURED_TERMINAL_H_
