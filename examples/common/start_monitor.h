#ifndef PTQWATCH_EXAMPLES_START_MONITOR_H_
#define PTQWATCH_EXAMPLES_START_MONITOR_H_

#include <memory>

#include "ptqwatch/monitor.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::examples {

/// Creates the monitor. Prints the addresses at which the run is served and, unless another process
/// measures, the reports. Throws UsageError for invalid options.
std::unique_ptr<Monitor> StartMonitor(std::unique_ptr<Subject> subject, MonitorOptions options);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_EXAMPLES_START_MONITOR_H_
