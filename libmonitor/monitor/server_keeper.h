#ifndef PTQWATCH_MONITOR_SERVER_KEEPER_H_
#define PTQWATCH_MONITOR_SERVER_KEEPER_H_

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
#include "monitor/server_launch.h"
#include "ptqwatch/serve_options.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// Keeps a server beside a run: starts it, and starts it again when it ends, after 0.1 s, doubling
/// to 30 s while it lives less than 5 s. All on a thread of its own. Thread-safe.
class ServerKeeper {
 public:
  /// Told on the keeper's thread.
  struct Listener {
    /// Every change, before WaitForHello and status() see it. Takes no lock that is held for long.
    std::function<void(const ServerStatus&)> on_status;
    /// That the server cannot be started (an error), and that one that could not or that ended
    /// serves again (an info).
    std::function<void(const absl::Status& failure, const std::string& message)> on_change;
  };

  struct Timing {
    std::chrono::milliseconds first_pause{100};
    std::chrono::milliseconds longest_pause{30'000};
    std::chrono::milliseconds short_life{5'000};
    std::chrono::milliseconds hello{
        30'000};  ///< a server that says nothing for so long is given up
  };

  /// `run_dir` has a monitor that journals there. NotFound or FailedPrecondition of
  /// FindServerProgram. With `remove_run_dir` the directory is removed by the server's end, or by
  /// this object's if no server lives.
  static absl::StatusOr<std::unique_ptr<ServerKeeper>> Start(const ServeOptions& options,
                                                             const std::string& run_dir,
                                                             bool remove_run_dir, Listener listener,
                                                             const Timing& timing);
  /// Stop(1 s). To be destroyed after the monitor, which writes to `run_dir`.
  ~ServerKeeper();
  ServerKeeper(const ServerKeeper&) = delete;
  ServerKeeper& operator=(const ServerKeeper&) = delete;

  /// Waits until the server serves or has failed, at most so long.
  ServerStatus WaitForHello(std::chrono::milliseconds timeout) const;
  ServerStatus status() const;
  /// Gives the CPU time, in seconds, that the server of the moment has taken; 0 without one. May
  /// outlive this object. Thread-safe.
  std::function<double()> CpuSeconds() const;
  /// Leaves the server to itself, which sees that the monitor has stopped. Idempotent. A thread
  /// that does not end in time, because on_change does not return, is left behind.
  void Stop(std::chrono::milliseconds deadline);

 private:
  struct Shared;
  explicit ServerKeeper(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  const std::shared_ptr<Shared> shared_;
  Thread thread_;
};

/// A directory for a run that is only served, for its owner alone, in $XDG_RUNTIME_DIR or else
/// $TMPDIR or /tmp. The status of errno.
absl::StatusOr<std::string> MakeServedDirectory();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_SERVER_KEEPER_H_
