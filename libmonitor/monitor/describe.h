#ifndef PTQWATCH_MONITOR_DESCRIBE_H_
#define PTQWATCH_MONITOR_DESCRIBE_H_

#include <string>
#include <string_view>

#include "probes/probe_suite.h"
#include "trainer/staging.h"

namespace ptqwatch::internal {

/// The text behind Monitor::Describe: what the probes will measure, and what that takes.
/// `duty_cycle_reason` says where the duty cycle comes from.
std::string DescribeMonitor(ProbeSuite& suite, const Staging& staging, double duty_cycle,
                            std::string_view duty_cycle_reason);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_DESCRIBE_H_
