#ifndef PTQWATCH_TOOLS_PTQWATCH_WATCH_COMMAND_H_
#define PTQWATCH_TOOLS_PTQWATCH_WATCH_COMMAND_H_

#include "absl/status/status.h"
#include "flags.h"
#include "ptqwatch/run_source.h"
#include "terminal.h"

namespace ptqwatch::internal {

/// Follows a run until it ends, or until the flags, a key or the reader end the view. Uses the full
/// screen of an interactive() terminal, otherwise a row or a line of JSON per report. `pace` gives
/// the waits; the flags override its other members.
absl::Status WatchRun(const WatchFlags& flags, WatchOptions pace, Clock* clock, Terminal* terminal);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_WATCH_COMMAND_H_
