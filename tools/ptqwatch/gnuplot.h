#ifndef PTQWATCH_TOOLS_PTQWATCH_GNUPLOT_H_
#define PTQWATCH_TOOLS_PTQWATCH_GNUPLOT_H_

#include <string>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// What the program gnuplot of the PATH makes of a script that sets no output: the bytes of an
/// image. NotFound where there is no such program; Internal with its message where it fails.
absl::StatusOr<std::string> RunGnuplot(const std::string& script);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_GNUPLOT_H_
