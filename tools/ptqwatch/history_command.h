#ifndef PTQWATCH_TOOLS_PTQWATCH_HISTORY_COMMAND_H_
#define PTQWATCH_TOOLS_PTQWATCH_HISTORY_COMMAND_H_

#include "absl/status/status.h"
#include "flags.h"
#include "terminal.h"

namespace ptqwatch::internal {

/// Prints the reports of a journal as a table, as CSV or as JSON. The error names the argument.
absl::Status PrintHistory(const HistoryFlags& flags, Terminal* terminal);

/// Prints the layers of one report of a journal. NotFound, with the argument, if no report has
/// layers or no report is of the requested step.
absl::Status PrintLayers(const LayersFlags& flags, Terminal* terminal);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_HISTORY_COMMAND_H_
