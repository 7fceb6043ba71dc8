#ifndef PTQWATCH_TOOLS_PTQWATCH_REPORT_COMMAND_H_
#define PTQWATCH_TOOLS_PTQWATCH_REPORT_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"
#include "flags.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// Writes the page of the run selected by `flags`, and returns a summary. The file is written
/// completely or not at all. Errors name the argument: NotFound if the directory has no run.
absl::StatusOr<std::string> WriteRunPage(const ReportFlags& flags, Clock* clock);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_REPORT_COMMAND_H_
