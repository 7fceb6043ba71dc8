#ifndef PTQWATCH_RANKS_MERGE_REPORTS_H_
#define PTQWATCH_RANKS_MERGE_REPORTS_H_

#include <vector>

#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Merges the reports of several ranks on one snapshot into the report of a trainer that measures
/// everything: each measurement comes from the rank that made it, the full-precision loss from the
/// rank that used the most tokens, the rest from the lowest rank. Costs are summed. `rank`,
/// `sequence` and `parameter_digests` are cleared.
///
/// A measurement that all of `parts` leave to another rank keeps the status kOtherRank and the
/// detail that names its rank. If `complete`, all ranks have reported, so its rank had none to
/// make: it is removed, except a quantizer. REQUIRES: `parts` is not empty, ascending by rank, with
/// one fingerprint and one snapshot.
Report MergeReports(std::vector<Report> parts, bool complete);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_RANKS_MERGE_REPORTS_H_
