#ifndef PTQWATCH_MONITOR_COMPUTE_THREAD_H_
#define PTQWATCH_MONITOR_COMPUTE_THREAD_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace ptqwatch::internal {

/// Sets up the calling thread, and no other, for measuring: one OpenMP and MKL thread, and backward
/// passes that stay on it.
void InitComputeThread();

/// Runs `work`, which must not throw, on a new thread set up by InitComputeThread, and waits for
/// it. ResourceExhausted if the system cannot start a thread.
absl::Status OnComputeThread(absl::FunctionRef<absl::Status()> work);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_COMPUTE_THREAD_H_
