#ifndef PTQWATCH_CHILDREN_SERVER_KEEPER_H_
#define PTQWATCH_CHILDREN_SERVER_KEEPER_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "children/server_launch.h"
#include "children/server_program.h"
#include "ptqwatch/serve_options.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// Keeps a server running beside a run. If the server ends, starts it again after 0.1 s; the pause
/// doubles up to 30 s while servers live less than 5 s. Works on its own thread. Thread-safe.
class ServerKeeper {
 public:
  /// Called on the keeper's thread.
  struct Listener {
    /// Gets every change before WaitForHello and status() return it, and the server's process, 0
    /// unless it serves. Must not take a lock that is held for long.
    std::function<void(const ServerStatus&, pid_t process)> on_status;
    /// Gets an error if the server cannot be started, and OK when one that had failed or ended
    /// serves again.
    std::function<void(const absl::Status& failure, const std::string& message)> on_change;
  };

  struct Timing {
    std::chrono::milliseconds first_pause{100};
    std::chrono::milliseconds longest_pause{30'000};
    std::chrono::milliseconds short_life{5'000};
    std::chrono::milliseconds hello{30'000};  ///< time for a server to say hello
  };

  /// A monitor must be journaling to the directory. Errors: NotFound or FailedPrecondition of
  /// FindServerProgram. If the directory is to be removed and no server is running at the end, this
  /// object removes it.
  static absl::StatusOr<std::unique_ptr<ServerKeeper>> Start(const ServeOptions& options,
                                                             const ServedDirectory& directory,
                                                             Listener listener,
                                                             const Timing& timing);
  /// Start, with the usual timing, and waits until the server serves or has failed, for at most
  /// `wait`. `keeper` is set before the wait; it goes on trying if the server has failed. If it
  /// cannot be started, or there is no directory, the log and the listener have the reason, too.
  static absl::Status Serve(const ServeOptions& options,
                            const absl::StatusOr<ServedDirectory>& directory, Listener listener,
                            std::chrono::milliseconds wait, std::unique_ptr<ServerKeeper>& keeper);
  /// Calls Stop(1 s). Destroy it after the monitor, which writes to the directory.
  ~ServerKeeper();
  ServerKeeper(const ServerKeeper&) = delete;
  ServerKeeper& operator=(const ServerKeeper&) = delete;

  /// Waits until the server serves or has failed, for at most `timeout`.
  ServerStatus WaitForHello(std::chrono::milliseconds timeout) const;
  ServerStatus status() const;
  /// Leaves the server running; it ends once it sees that the monitor has stopped. Idempotent. A
  /// thread that misses the deadline, because on_change does not return, is left behind.
  void Stop(std::chrono::milliseconds deadline);

 private:
  struct Shared;
  explicit ServerKeeper(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  const std::shared_ptr<Shared> shared_;
  Thread thread_;
};

/// Makes a directory, accessible to its owner only, for a run that only its server reads: in
/// $XDG_RUNTIME_DIR, else $TMPDIR, else /tmp. Unavailable, with the error of each, if all fail.
absl::StatusOr<std::string> MakeServedDirectory();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CHILDREN_SERVER_KEEPER_H_
