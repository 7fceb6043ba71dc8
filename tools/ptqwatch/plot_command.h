#ifndef PTQWATCH_TOOLS_PTQWATCH_PLOT_COMMAND_H_
#define PTQWATCH_TOOLS_PTQWATCH_PLOT_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"
#include "flags.h"

namespace ptqwatch::internal {

/// Draws runs into a file, which appears complete or not at all. A line that says what was written.
absl::StatusOr<std::string> WritePlot(const PlotFlags& flags);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_PLOT_COMMAND_H_
