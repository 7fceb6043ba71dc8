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
/// exceeds the screen; the least important lines are omitted first. A pure function.
std::vector<std::string> WatchScreen(const WatchState& state, ScreenSize size, TextStyle style);

/// Text that remains on the terminal after the view is closed: the newest report and its verdict,
/// or empty if there is none.
std::string WatchSummary(const WatchState& state, TextStyle style);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_WATCH_SCREEN_H_
