#ifndef PTQWATCH_BASE_USABLE_CORES_H_
#define PTQWATCH_BASE_USABLE_CORES_H_

#include <string>

namespace ptqwatch::internal {

/// CPUs in the affinity mask of the calling thread.
int AllowedCpus();

/// Cores that this process may use: AllowedCpus or, if it is less, the
/// cgroup quota (v2 or v1), rounded down, but at least 1. Tests replace `root`, the folder of /sys
/// and /proc.
int UsableCores(const std::string& root = "");

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_USABLE_CORES_H_
