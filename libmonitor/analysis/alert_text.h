#ifndef PTQWATCH_ANALYSIS_ALERT_TEXT_H_
#define PTQWATCH_ANALYSIS_ALERT_TEXT_H_

#include <string>

#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Describes the alarm that begins with a verdict, or ends, where `before` is the state of the
/// previous verdict. Empty: neither. REQUIRES: neither state is kUnknown.
std::string AlertText(VerdictState before, const Verdict& verdict);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_ALERT_TEXT_H_
