#ifndef PTQWATCH_TOOLS_PTQWATCH_REPORT_COMMAND_H_
#define PTQWATCH_TOOLS_PTQWATCH_REPORT_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"
#include "flags.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// Writes the page of a run that `flags` ask for, and says what it wrote. The file is there wholly
/// or not at all. Errors name the argument: NotFound where the directory has no run.
absl::StatusOr<std::string> WriteRunPage(const ReportFlags& flags, Clock* clock);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_REPORT_COMMAND_H_
