#ifndef PTQWATCH_TOOLS_PTQWATCH_FULL_SCREEN_H_
#define PTQWATCH_TOOLS_PTQWATCH_FULL_SCREEN_H_

#include <string>
#include <vector>

#include "terminal.h"
#include "watch_screen.h"

namespace ptqwatch::internal {

/// The alternate screen of the terminal that standard input and output are: no cursor, no echo,
/// keys one by one; Ctrl-C and Ctrl-Z work as ever. There is at most one at a time. Not
/// thread-safe.
class FullScreen {
 public:
  /// `terminal`, which must outlive it, is interactive().
  explicit FullScreen(Terminal* terminal);
  /// The terminal is as it was before.
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  ScreenSize size() const { return {terminal_->columns(), terminal_->rows()}; }
  /// Writes nothing where the screen shows the lines already.
  void Draw(const std::vector<std::string>& lines);
  /// The next key that was pressed, or 0. Does not wait.
  char Key();

 private:
  Terminal* const terminal_;
  ScreenSize drawn_size_;
  std::string drawn_;
};

/// Brings the terminal back if there is a FullScreen: for signal handlers of a process that ends.
/// Async-signal-safe.
void AbandonFullScreen();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_FULL_SCREEN_H_
