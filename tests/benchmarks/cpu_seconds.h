#ifndef PTQWATCH_BENCHMARKS_CPU_SECONDS_H_
#define PTQWATCH_BENCHMARKS_CPU_SECONDS_H_

#include <time.h>

namespace ptqwatch::benchmarks {

/// CPU time of the calling thread.
inline double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace ptqwatch::benchmarks

#endif  // PTQWATCH_BENCHMARKS_CPU_SECONDS_H_
