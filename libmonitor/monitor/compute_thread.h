#ifndef PTQWATCH_MONITOR_COMPUTE_THREAD_H_
#define PTQWATCH_MONITOR_COMPUTE_THREAD_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace ptqwatch::internal {

/// Sets the calling thread up for measuring, without touching any other: one OpenMP and MKL thread,
/// and a backward pass that stays on it.
void InitComputeThread();

/// Runs `work` on a thread of its own that is set up so, and waits for it. The work must not throw.
/// ResourceExhausted where the system gives no thread.
absl::Status OnComputeThread(absl::FunctionRef<absl::Status()> work);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_COMPUTE_THREAD_H_
