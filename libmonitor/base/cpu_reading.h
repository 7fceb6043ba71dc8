#ifndef PTQWATCH_BASE_CPU_READING_H_
#define PTQWATCH_BASE_CPU_READING_H_

#include <sys/types.h>

#include <optional>
#include <string>

namespace ptqwatch::internal {

/// Counters of CPU time, in seconds. Only differences between two readings are meaningful.
struct CpuReading {
  double wall = 0;
  double idle = 0;     ///< of all CPUs that the calling thread may run on, summed
  double own = 0;      ///< CPU time of the calling thread
  double waited = 0;   ///< of the calling thread: runnable, but not running
  double process = 0;  ///< CPU time of the process
  /// Time during which a CPU quota stopped threads of the process's cgroups.
  double throttled = 0;
};

/// Reads the counters from /proc/stat, /proc/thread-self/schedstat, the CPU clocks and the cpu.stat
/// files of cgroups, if any. Returns nullopt if the system does not provide them. `root` is put in
/// front of /proc and /sys, for tests. Costs about 0.1 ms.
std::optional<CpuReading> ReadCpu(const std::string& root = "");

/// CPU time of all threads of a process, in seconds. 0 if there is no such process, or `process` is
/// not positive.
double CpuSecondsOf(pid_t process);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_CPU_READING_H_
