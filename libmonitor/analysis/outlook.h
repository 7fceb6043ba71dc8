#ifndef PTQWATCH_ANALYSIS_OUTLOOK_H_
#define PTQWATCH_ANALYSIS_OUTLOOK_H_

#include <vector>

#include "absl/types/span.h"
#include "analysis/history.h"
#include "ptqwatch/verdict.h"

namespace ptqwatch::internal {

/// The effect of the decay on each quantizer of the newest snapshot, relative to the last snapshots
/// of the plateau. `plateau` and `decay` are indices into the history, oldest first. Numbers that
/// do not exceed the scatter are absent; an outlook without numbers is omitted.
std::vector<DecayOutlook> OutlookOf(const History& history, absl::Span<const size_t> plateau,
                                    absl::Span<const size_t> decay);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_OUTLOOK_H_
