#ifndef PTQWATCH_BASE_THREAD_H_
#define PTQWATCH_BASE_THREAD_H_

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"

namespace ptqwatch::internal {

/// A handle of a thread that StartThread started. Detaches the thread where it is destroyed before
/// Join.
class PTQWATCH_EXPORT Thread {
 public:
  Thread() = default;
  Thread(Thread&& other) noexcept;
  Thread& operator=(Thread&& other) noexcept;
  ~Thread() { Detach(); }

  /// Started, and neither joined nor detached.
  bool joinable() const { return joinable_; }
  void Join();
  void Detach();

 private:
  friend absl::StatusOr<Thread> StartThread(std::string name, std::function<void()> run,
                                            size_t stack_bytes);
  explicit Thread(pthread_t thread) : thread_(thread), joinable_(true) {}
  pthread_t thread_{};
  bool joinable_ = false;
};

/// Enough for a thread that runs no code of the trainer's. glibc's own default follows
/// RLIMIT_STACK: next to nothing under a small one, and address space that the trainer may need
/// under a large one.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr size_t kStackBytes = size_t{16} << 20;  // their frames are several times as large
#else
inline constexpr size_t kStackBytes = size_t{1} << 20;
#endif

/// For a thread that runs the trainer's closures: RLIMIT_STACK, like the main thread's stack, but
/// from 8 to 64 MiB. Only what is used takes memory.
size_t ClosureStackBytes();

/// Starts a thread that cannot end the process and does not take after its creator. All signals
/// are blocked; the name (at most 15 characters count) is set; the priority is
/// ThreadPriority::kBatch; the floating-point environment is the default one, without the traps
/// that a trainer may have enabled; it may run on all CPUs of UsableCpus, not only on the one to
/// which OpenMP has bound its creator. What `run` throws is logged. ResourceExhausted where the
/// system gives no thread.
PTQWATCH_EXPORT absl::StatusOr<Thread> StartThread(std::string name, std::function<void()> run,
                                                   size_t stack_bytes = kStackBytes);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_THREAD_H_
