#ifndef PTQWATCH_TOOLS_PTQWATCH_FULL_SCREEN_H_
#define PTQWATCH_TOOLS_PTQWATCH_FULL_SCREEN_H_

#include <string>
#include <vector>

#include "terminal.h"
#include "watch_screen.h"

namespace ptqwatch::internal {

/// The alternate screen of the terminal of standard input and output: no cursor, no echo, single
/// keys; Ctrl-C and Ctrl-Z work as usual. At most one may exist. Not thread-safe.
class FullScreen {
 public:
  /// `terminal` must outlive it and be interactive().
  explicit FullScreen(Terminal* terminal);
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  ScreenSize size() const { return {terminal_->columns(), terminal_->rows()}; }
  /// Writes nothing if the screen shows the lines already.
  void Draw(const std::vector<std::string>& lines);
  /// The next pressed key, or 0. Does not wait.
  char Key();

 private:
  Terminal* const terminal_;
  ScreenSize drawn_size_;
  std::string drawn_;
};

/// Restores the terminal if there is a FullScreen, for signal handlers of a process that ends.
/// Async-signal-safe.
void AbandonFullScreen();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_FULL_SCREEN_H_
