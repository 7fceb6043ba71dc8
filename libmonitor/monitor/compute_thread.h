#ifndef PTQWATCH_MONITOR_COMPUTE_THREAD_H_
#define PTQWATCH_MONITOR_COMPUTE_THREAD_H_

namespace ptqwatch::internal {

/// Sets the calling thread up for measuring, without touching any other: one OpenMP and MKL thread,
/// and a backward pass that stays on it.
void InitComputeThread();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_COMPUTE_THREAD_H_
