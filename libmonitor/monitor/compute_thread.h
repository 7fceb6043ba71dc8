#ifndef PTQWATCH_MONITOR_COMPUTE_THREAD_H_
#define PTQWATCH_MONITOR_COMPUTE_THREAD_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace ptqwatch::internal {

/// Sets up the calling thread, and no other, for measuring: so many OpenMP and MKL threads, and
/// backward passes that begin no other.
void InitComputeThread(int threads = 1);

/// Runs `work`, which must not throw, on a new thread set up by InitComputeThread, and waits for
/// it. ResourceExhausted if the system cannot start a thread.
absl::Status OnComputeThread(int threads, absl::FunctionRef<absl::Status()> work);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_COMPUTE_THREAD_H_
