#ifndef PTQWATCH_TOOLS_PTQWATCH_COMMAND_SUPPORT_H_
#define PTQWATCH_TOOLS_PTQWATCH_COMMAND_SUPPORT_H_

#include <chrono>
#include <functional>

#include "absl/status/status.h"
#include "client/connection.h"
#include "ptqwatch/control.h"
#include "terminal.h"

namespace ptqwatch::internal {

std::chrono::nanoseconds FromSeconds(double seconds);

/// Prints the status as a notice; the exit code of a command that failed.
int Fail(const absl::Status& status, Terminal* terminal);
/// The exit code of a command that has written all its output.
int Finish(Terminal* terminal);

/// Gives a command to the run itself, where the target is its directory, else to its server.
absl::Status Send(const Target& target, const std::function<absl::Status(Control&)>& to_run,
                  const std::function<grpc::Status(Connection&)>& to_server);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_COMMAND_SUPPORT_H_
