#ifndef PTQWATCH_BASE_LISTENER_H_
#define PTQWATCH_BASE_LISTENER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/net_address.h"
#include "base/process_end.h"
#include "base/thread.h"
#include "ptqwatch/config.h"

namespace ptqwatch::internal {

/// Whether so few descriptors of the process may be free that `reserved` could not be kept: Linux
/// gives out the lowest free number, so one near the limit says that few are left below it.
PTQWATCH_EXPORT bool IsOfTheLastDescriptors(int descriptor, int reserved);

/// Accepts connections on a thread of its own. Never takes the last descriptors of the process,
/// which the trainer needs for its data and checkpoints: a connection that would is closed at once.
class PTQWATCH_EXPORT Listener {
 public:
  /// Descriptors that are left to the trainer.
  static constexpr int kReservedDescriptors = 64;

  /// Listens on a bound socket, at `address` in messages. `take` gets each connection's
  /// non-blocking descriptor, to be closed by whoever has it then; it must return at once.
  /// Unavailable where the socket cannot listen, ResourceExhausted where there is no thread.
  static absl::StatusOr<std::unique_ptr<Listener>> Start(BoundSocket socket,
                                                         std::string thread_name,
                                                         const std::string& address,
                                                         std::function<void(int)> take);
  ~Listener() { Stop(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// Closes the socket; `take` is not called afterwards. Idempotent, but one thread at a
  /// time. Nothing in a child of fork(): the socket is its parent's, too.
  void Stop();

 private:
  Listener(BoundSocket socket, std::function<void(int)> take)
      : socket_(socket.Release()), take_(std::move(take)) {}
  void Accept();

  const ProcessMark process_;
  int socket_;
  const std::function<void(int)> take_;
  Thread thread_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_LISTENER_H_
