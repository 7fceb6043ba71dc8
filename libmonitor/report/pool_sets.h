#ifndef PTQWATCH_REPORT_POOL_SETS_H_
#define PTQWATCH_REPORT_POOL_SETS_H_

#include "ptqwatch/config.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Fills in everything of `pooled` that follows from its sets: status, estimates and tokens. The
/// standard errors are those of ratio estimators over the units of all sets, as EstimateRatio's. A
/// trainer alone and a reader that merges ranks both use it, so they get the same bits.
PTQWATCH_EXPORT void PoolSets(PooledLoss& pooled);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_POOL_SETS_H_
