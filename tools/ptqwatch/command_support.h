#ifndef PTQWATCH_TOOLS_PTQWATCH_COMMAND_SUPPORT_H_
#define PTQWATCH_TOOLS_PTQWATCH_COMMAND_SUPPORT_H_

#include <chrono>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/connection.h"
#include "ptqwatch/control.h"
#include "terminal.h"

namespace ptqwatch::internal {

std::chrono::nanoseconds FromSeconds(double seconds);

/// Prints the status as a notice; the exit code of a command that failed.
int Fail(const absl::Status& status, Terminal* terminal);
/// The exit code of a command that has written all its output.
int Finish(Terminal* terminal);

/// Gives a command to the run itself if the target is its directory, else to its server. Returns
/// what Control::Do does.
absl::StatusOr<int64_t> Send(const Target& target, const Command& command);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_COMMAND_SUPPORT_H_
