#ifndef PTQWATCH_MONITOR_MEASURED_COSTS_H_
#define PTQWATCH_MONITOR_MEASURED_COSTS_H_

#include "monitor/planner.h"
#include "probes/probe_suite.h"
#include "ptqwatch/options.h"

namespace ptqwatch::internal {

/// What a plan for this suite can be made of, and what its probes will cost, as far as Create can
/// know: evaluations are timed, arithmetic is counted.
PlanModel PlanModelAtCreate(ProbeSuite& suite, const MonitorOptions& options);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_MEASURED_COSTS_H_
