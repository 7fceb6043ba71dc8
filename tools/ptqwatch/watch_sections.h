#ifndef PTQWATCH_TOOLS_PTQWATCH_WATCH_SECTIONS_H_
#define PTQWATCH_TOOLS_PTQWATCH_WATCH_SECTIONS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "report_table.h"
#include "watch_state.h"

namespace ptqwatch::internal {

/// The sections of the full-screen view as lines of at most `columns`, the most important first.
/// Empty if there is nothing to show.
std::vector<std::string> RunSection(const WatchState& state, size_t columns, TextStyle style);
std::vector<std::string> VerdictSection(const WatchState& state, size_t columns, TextStyle style);
std::vector<std::string> QuantizerSection(const WatchState& state, size_t columns, TextStyle style);
std::vector<std::string> TrendSection(const WatchState& state, size_t columns, TextStyle style);
std::vector<std::string> LayerSection(const WatchState& state, size_t columns, TextStyle style);
std::vector<std::string> EventSection(const WatchState& state, size_t columns, TextStyle style);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_WATCH_SECTIONS_H_
