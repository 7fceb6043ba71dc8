#ifndef PTQWATCH_BASE_WORKER_H_
#define PTQWATCH_BASE_WORKER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// The monitor's only thread (see StartThread), with a stack for the trainer's closures. It sleeps
/// until Wake and then calls `job`; wakes during a job are not lost.
class Worker {
 public:
  struct Hooks {
    std::string name = "ptqwatch";      ///< at most 15 characters
    std::function<void()> thread_init;  ///< called first on the thread
    /// Called once per wake. Must not throw. Must own (by shared_ptr) everything it touches,
    /// because the thread may outlive this object.
    std::function<void()> job;
    /// Called last on the thread, after Stop. The same rules apply. May be empty.
    std::function<void()> thread_end;
  };
  static absl::StatusOr<std::unique_ptr<Worker>> Start(Hooks hooks);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Lock-free and async-signal-safe, so the training thread may call it.
  void Wake() noexcept;

  /// Whether the caller runs inside the job or another hook.
  bool IsCurrentThread() const noexcept;

  /// Ends the thread after the current job. False if that takes longer than `deadline`: the thread
  /// is then detached and ends by itself. Idempotent.
  bool Stop(std::chrono::milliseconds deadline);

 private:
  struct State;
  explicit Worker(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static void Run(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_WORKER_H_
