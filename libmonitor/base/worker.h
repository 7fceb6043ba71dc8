#ifndef PTQWATCH_BASE_WORKER_H_
#define PTQWATCH_BASE_WORKER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// The monitor's one thread (see StartThread), with a stack for the trainer's closures. It sleeps
/// until Wake and then calls `job`; wakes that come while it works are not lost.
class Worker {
 public:
  struct Hooks {
    std::string name = "ptqwatch";      ///< at most 15 characters
    std::function<void()> thread_init;  ///< first thing on the thread
    /// One call a wake. Must not throw. Owns (by shared_ptr) whatever it touches: the thread may
    /// outlive this object.
    std::function<void()> job;
    /// Last thing on the thread, after Stop. The same holds for it. May be empty.
    std::function<void()> thread_end;
  };
  static absl::StatusOr<std::unique_ptr<Worker>> Start(Hooks hooks);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Lock-free, async-signal-safe; may be called by the training thread.
  void Wake() noexcept;

  /// Whether the caller is the job, or one of the other hooks.
  bool IsCurrentThread() const noexcept;

  /// Ends the thread after the job that is running. False if that takes longer than `deadline`: the
  /// thread is then detached and ends by itself. Idempotent.
  bool Stop(std::chrono::milliseconds deadline);

 private:
  struct State;
  explicit Worker(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static void Run(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_WORKER_H_
