#ifndef PTQWATCH_ANALYSIS_OUTLOOK_H_
#define PTQWATCH_ANALYSIS_OUTLOOK_H_

#include <vector>

#include "absl/types/span.h"
#include "analysis/history.h"
#include "ptqwatch/verdict.h"

namespace ptqwatch::internal {

/// What the decay has done to each quantizer that the newest snapshot has, against the last
/// snapshots of the plateau. `plateau` and `decay`: places in the history, oldest first. Numbers
/// that do not stand out of the scatter are absent; an outlook without any is left out.
std::vector<DecayOutlook> OutlookOf(const History& history, absl::Span<const size_t> plateau,
                                    absl::Span<const size_t> decay);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_OUTLOOK_H_
