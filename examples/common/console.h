#ifndef PTQWATCH_COMMON_CONSOLE_H_
#define PTQWATCH_COMMON_CONSOLE_H_

#include <mutex>
#include <string>
#include <string_view>

namespace ptqwatch::examples {

/// The process's standard output: whole lines, flushed, and on a terminal a progress line below
/// them that is rewritten in place. Thread-safe.
class Console {
 public:
  /// Never destroyed, so that the library's log sink may use it to the very end.
  static Console& Get();

  /// Whether standard output is a terminal; without one, Progress does nothing.
  bool terminal() const { return terminal_; }
  void Line(std::string_view text);
  /// A line to standard error.
  void Warning(std::string_view text);
  /// Replaces the progress line, cut to the terminal's width; an empty text removes it.
  void Progress(std::string_view text);

 private:
  Console();
  /// REQUIRES: mutex_ is held. Text that takes the progress line off the screen.
  std::string_view Erase() const;

  const bool terminal_;
  std::mutex mutex_;
  std::string progress_;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_CONSOLE_H_
