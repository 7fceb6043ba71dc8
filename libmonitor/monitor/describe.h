#ifndef PTQWATCH_MONITOR_DESCRIBE_H_
#define PTQWATCH_MONITOR_DESCRIBE_H_

#include <cstdint>
#include <string>

#include "budget/planner.h"
#include "jobs/jobs.h"
#include "probes/probe_suite.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "snapshot/optimizer_staging.h"

namespace ptqwatch::internal {

struct MonitorDescription {
  /// Text of Monitor::Describe: what the probes measure, with which plan, and the time and memory
  /// this takes.
  std::string text;
  /// Approximate MonitorOptions::max_bytes that leaves room for probes that are off for lack of
  /// memory; 0 if they are off for lack of a GPU's memory.
  int64_t enough_bytes = 0;
};
MonitorDescription DescribeMonitor(ProbeSuite& suite, const Jobs& jobs,
                                   const OptimizerStaging& optimizer, const Planner& planner,
                                   const MonitorOptions& options);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_DESCRIBE_H_
