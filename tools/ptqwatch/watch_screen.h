#ifndef PTQWATCH_TOOLS_PTQWATCH_WATCH_SCREEN_H_
#define PTQWATCH_TOOLS_PTQWATCH_WATCH_SCREEN_H_

#include <cstddef>
#include <string>
#include <vector>

#include "report_table.h"
#include "watch_state.h"

namespace ptqwatch::internal {

struct ScreenSize {
  size_t columns = 80;
  size_t rows = 24;
  friend bool operator==(const ScreenSize&, const ScreenSize&) = default;
};

/// The lines of the full-screen view: run, verdict, quantizers, trends, layers, events, keys. Never
/// more or wider than the screen; what matters least is left out first. A pure function.
std::vector<std::string> WatchScreen(const WatchState& state, ScreenSize size, TextStyle style);

/// What stays on the terminal once the view is closed: the newest report and its verdict, or empty
/// where none has come.
std::string WatchSummary(const WatchState& state, TextStyle style);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_WATCH_SCREEN_H_
