#ifndef PTQWATCH_TOOLS_PTQWATCH_COMMAND_SUPPORT_H_
#define PTQWATCH_TOOLS_PTQWATCH_COMMAND_SUPPORT_H_

#include <chrono>
#include <string_view>

#include "absl/status/status.h"
#include "ptqwatch/offline/replay.h"
#include "terminal.h"

namespace ptqwatch::internal {

std::chrono::nanoseconds FromSeconds(double seconds);

/// Prints the status as a notice and returns the exit code of a failed command.
int Fail(const absl::Status& status, Terminal* terminal);
/// The exit code of a command that has written all of its output.
int Finish(Terminal* terminal);
/// The exit code of a command that ended with the status.
int Finish(const absl::Status& status, Terminal* terminal);

/// Prints as notices which lines of `journal` were skipped, and that its ranks have different
/// parameters.
void NoteProblems(std::string_view journal, const ReplayedJournal& read, Terminal* terminal);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_COMMAND_SUPPORT_H_
