#ifndef PTQWATCH_MONITOR_DESCRIBE_H_
#define PTQWATCH_MONITOR_DESCRIBE_H_

#include <cstdint>
#include <string>

#include "jobs/jobs.h"
#include "monitor/planner.h"
#include "probes/probe_suite.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "trainer/staging.h"

namespace ptqwatch::internal {

struct MonitorDescription {
  /// Behind Monitor::Describe: what the probes will measure, with what plan, and what that takes of
  /// time and memory.
  std::string text;
  /// MonitorOptions::max_bytes that would leave room for the probes that are off for want of
  /// memory, about.
  int64_t enough_bytes = 0;
};
MonitorDescription DescribeMonitor(ProbeSuite& suite, const Jobs& jobs, const Staging& staging,
                                   const Planner& planner, const MonitorOptions& options,
                                   const ByteBudget& budget);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_DESCRIBE_H_
