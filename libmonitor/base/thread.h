#ifndef PTQWATCH_BASE_THREAD_H_
#define PTQWATCH_BASE_THREAD_H_

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"

namespace ptqwatch::internal {

/// A handle of a thread started by StartThread. Its destructor detaches the thread if it was not
/// joined.
class PTQWATCH_EXPORT Thread {
 public:
  Thread() = default;
  Thread(Thread&& other) noexcept;
  Thread& operator=(Thread&& other) noexcept;
  ~Thread() { Detach(); }

  /// Whether the thread was started, and neither joined nor detached.
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

/// Enough for a thread that runs no code of the trainer. glibc's default follows RLIMIT_STACK,
/// which may be far too small, or so large that it takes address space that the trainer needs.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr size_t kStackBytes = size_t{16}
                                      << 20;  // sanitizers enlarge stack frames several times
#else
inline constexpr size_t kStackBytes = size_t{1} << 20;
#endif

/// Stack for a thread that runs the trainer's closures: RLIMIT_STACK, like the main thread's stack,
/// clamped to 8 to 64 MiB. Only used pages take memory.
size_t ClosureStackBytes();

/// Starts a thread that cannot end the process and does not inherit its creator's settings: all
/// signals are blocked; the name is set (at most 15 characters are used); the priority is
/// ThreadPriority::kBatch; the floating-point environment is the default one, without traps; and
/// the thread may run on all CPUs of UsableCpus, even if OpenMP bound its creator to one.
/// Exceptions from `run` are logged. ResourceExhausted if the system cannot start a thread.
PTQWATCH_EXPORT absl::StatusOr<Thread> StartThread(std::string name, std::function<void()> run,
                                                   size_t stack_bytes = kStackBytes);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_THREAD_H_
