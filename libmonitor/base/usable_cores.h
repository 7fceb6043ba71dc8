#ifndef PTQWATCH_BASE_USABLE_CORES_H_
#define PTQWATCH_BASE_USABLE_CORES_H_

#include <sched.h>

#include <string>

namespace ptqwatch::internal {

/// CPUs on which a thread of this process may run: the CPUs of the calling thread and, if OpenMP
/// binds threads (OMP_PROC_BIND, GOMP_CPU_AFFINITY), the CPUs of all its places.
cpu_set_t UsableCpus();

/// The number of UsableCpus.
int AllowedCpus();

/// Cores that this process may use: AllowedCpus or, if it is less, the cgroup quota (v2 or v1),
/// rounded down, but at least 1. `root` is put in front of /sys and /proc, for tests.
int UsableCores(const std::string& root = "");

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_USABLE_CORES_H_
