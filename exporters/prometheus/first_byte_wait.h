#ifndef PTQWATCH_PROMETHEUS_FIRST_BYTE_WAIT_H_
#define PTQWATCH_PROMETHEUS_FIRST_BYTE_WAIT_H_

#include <chrono>
#include <functional>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/process_end.h"
#include "base/thread.h"

namespace ptqwatch::internal {

/// Keeps accepted connections until their clients say something, on a thread of its own. Silent
/// ones, which browsers open ahead of requests that may never come, then hold no worker.
class FirstByteWait {
 public:
  static constexpr size_t kMostConnections = 64;

  /// `ready` gets each connection that has something to read or was closed by its client; it must
  /// return at once. One that is silent for `patience` is closed. ResourceExhausted where the
  /// system gives no descriptors or no thread.
  static absl::StatusOr<std::unique_ptr<FirstByteWait>> Start(std::chrono::milliseconds patience,
                                                              std::function<void(int)> ready);
  ~FirstByteWait();
  FirstByteWait(const FirstByteWait&) = delete;
  FirstByteWait& operator=(const FirstByteWait&) = delete;

  /// Takes over a connection. Where kMostConnections wait, the one that has waited for longest is
  /// closed. Thread-safe.
  void Add(int connection);
  /// Closes all that wait; `ready` is not called afterwards. Idempotent, but one thread at a time.
  void Stop();

 private:
  using Time = std::chrono::steady_clock::time_point;

  FirstByteWait(std::chrono::milliseconds patience, std::function<void(int)> ready)
      : patience_(patience), ready_(std::move(ready)) {}
  void Run();
  int MillisecondsToWait() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseSilent(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// False where the connection is not waiting any more.
  bool Forget(int connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ProcessMark process_;
  const std::chrono::milliseconds patience_;
  const std::function<void(int)> ready_;
  int epoll_ = -1;
  int wake_ = -1;  // an eventfd
  Thread thread_;
  Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<int, Time> until_ ABSL_GUARDED_BY(mutex_);  // by connection
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROMETHEUS_FIRST_BYTE_WAIT_H_
