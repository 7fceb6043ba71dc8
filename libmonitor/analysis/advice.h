#ifndef PTQWATCH_ANALYSIS_ADVICE_H_
#define PTQWATCH_ANALYSIS_ADVICE_H_

#include <vector>

#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Recommended actions for an alarm, from the measurements in `report` and the verdict; largest
/// gain first. Actions with a measured gain need more than two standard errors of it. Averages come
/// with the best one for the verdict's quantizer and the best one for another width of 3 or 4 bits.
/// Empty if the verdict is no alarm.
std::vector<Advice> AdviceFor(const Report& report, const Verdict& verdict);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_ADVICE_H_
