#ifndef PTQWATCH_BASE_USABLE_CORES_H_
#define PTQWATCH_BASE_USABLE_CORES_H_

#include <string>

namespace ptqwatch::internal {

/// Cores this process may really use: min(CPU affinity of the calling thread, cgroup v2 or v1
/// quota, rounded down but at least 1). `root` is where /sys and /proc are looked for; tests give a
/// folder of their own.
int UsableCores(const std::string& root = "");

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_USABLE_CORES_H_
