#include "monitor/compute_thread.h"

#include <omp.h>

#include "ATen/Parallel.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "c10/core/AutogradState.h"

// From LibTorch's BLAS. Weak, because a LibTorch without MKL lacks it.
extern "C" int MKL_Set_Num_Threads_Local(int threads) __attribute__((weak));

namespace ptqwatch::internal {

void InitComputeThread(int threads) {
  // ATen sets a thread's OpenMP count at its first use, so another count lasts only if set after
  // that. at::set_num_threads would change the count of the whole process.
  (void)at::get_num_threads();
  omp_set_num_threads(threads);
  // The first use also set this thread's own count in MKL, which overrides OpenMP's.
  if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(threads);
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

absl::Status OnComputeThread(int threads, absl::FunctionRef<absl::Status()> work) {
  absl::Status status;
  PTQWATCH_ASSIGN_OR_RETURN(Thread thread, StartThread(
                                               "ptqwatch-create",
                                               [&] {
                                                 InitComputeThread(threads);
                                                 status = Guard(work);
                                               },
                                               ClosureStackBytes()));
  thread.Join();
  return status;
}

}  // namespace ptqwatch::internal
