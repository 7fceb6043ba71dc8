#ifndef PTQWATCH_ANALYSIS_ADVICE_H_
#define PTQWATCH_ANALYSIS_ADVICE_H_

#include <vector>

#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// What can be done about an alarm, from what `report` measured and the verdict found; the largest
/// gain first. Nothing without a measured gain of more than two standard errors, and nothing where
/// the verdict is no alarm.
std::vector<Advice> AdviceFor(const Report& report, const Verdict& verdict);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_ADVICE_H_
