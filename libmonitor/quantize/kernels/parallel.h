#ifndef PTQWATCH_QUANTIZE_KERNELS_PARALLEL_H_
#define PTQWATCH_QUANTIZE_KERNELS_PARALLEL_H_

#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// Returns InvalidArgument, naming `context.threads`, if it is below 1.
absl::Status CheckThreads(const ExecutionContext& context);

/// Threads that share the loops of one engine call. The constructing thread is number 0 and does
/// its share of the work; the other threads end with the team. Only the constructing thread may use
/// the team. Making a team costs about 30 us per thread, a loop about 10 us.
class ThreadTeam {
 public:
  /// Does one piece of a loop. Arguments: the number of its thread (to index scratch memory), the
  /// index of the piece, and a context to check now and then.
  using Body =
      absl::FunctionRef<absl::Status(int thread, int64_t index, const ExecutionContext& context)>;

  /// Starts min(context.threads, 1 + flop / a few million) threads, or fewer if the system refuses.
  ThreadTeam(double flop, const ExecutionContext& context);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return 1 + static_cast<int>(helpers_.size()); }

  /// Calls `body` once for every index in [0, count), lower ones first, and returns when all calls
  /// have ended. After an error no further call begins. Returns the error of the lowest index.
  /// Exceptions become ResourceExhausted (out of memory) or Internal.
  absl::Status ForEach(int64_t count, Body body);

 private:
  struct Loop;
  struct Helper {
    ExecutionContext context;
    std::thread thread;
  };

  void Serve(int thread, const ExecutionContext& context);
  static void Work(Loop& loop, int thread, const ExecutionContext& context);

  const ExecutionContext& context_;
  std::vector<Helper> helpers_;
  Mutex mutex_;
  CondVar begin_;
  CondVar end_;
  Loop* loop_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;  // loops started
  int working_ ABSL_GUARDED_BY(mutex_) = 0;         // helpers inside loop_
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_PARALLEL_H_
