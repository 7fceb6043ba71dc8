#ifndef PTQWATCH_TOOLS_PTQWATCH_SPARKLINE_H_
#define PTQWATCH_TOOLS_PTQWATCH_SPARKLINE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "ptqwatch/step_info.h"

namespace ptqwatch::internal {

/// One character per value, from the least to the greatest of the last `columns` values. Block
/// characters, or "_.-=+*#@" without UTF-8; a space for values that are not finite; the lowest
/// level if all are equal.
std::string Sparkline(const std::vector<double>& values, size_t columns, bool utf8);

/// The phases of the last `columns` reports, one character each: "|stable-----|decay--".
std::string PhaseLine(const std::vector<LrPhase>& phases, size_t columns, bool utf8);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_SPARKLINE_H_
