#ifndef PTQWATCH_CHILDREN_WORKER_KEEPER_H_
#define PTQWATCH_CHILDREN_WORKER_KEEPER_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/process_end.h"
#include "base/thread.h"

namespace ptqwatch::internal {

/// Runs a process beside the trainer, and runs it again when it ends: after 1 s, doubling to 60 s
/// while it lives less than a minute. It is spawned, never forked, in a session of its own, so that
/// Ctrl-C in a terminal does not reach it. All but the first start with nice 19. Works on a
/// thread of its own, which only waits. Thread-safe. Does nothing in a child of fork().
class WorkerKeeper {
 public:
  struct Command {
    std::string program = {};  ///< absolute path; argv[0]
    std::vector<std::string> arguments = {};
    std::vector<std::string> environment = {};  ///< "NAME=VALUE"
    /// Descriptors that the process gets as 3, 4, ...; all others are closed. They must stay open.
    std::vector<int> files = {};
    /// Exit status of a process that would only end in the same way again; it is not run again.
    int final_status = -1;
  };
  struct Timing {
    std::chrono::milliseconds first_pause{1'000};
    std::chrono::milliseconds longest_pause{60'000};
    std::chrono::milliseconds long_life{60'000};
  };
  struct State {
    pid_t process = 0;     ///< 0: none is running
    int64_t restarts = 0;  ///< attempts to start it after the first
    /// How the newest one ended: "signal 9", "exit status 3"; empty if none has.
    std::string end = {};
    bool over = false;  ///< no other one follows
  };

  /// Every process but the first has PTQWATCH_REPLACES in its environment: a sentence about the end
  /// of the one before.
  /// `ended` is called after every end, on the keeper's thread, and must not wait.
  static absl::StatusOr<std::unique_ptr<WorkerKeeper>> Start(Command command,
                                                             std::function<void()> ended,
                                                             const Timing& timing);
  /// Calls Stop(0).
  ~WorkerKeeper();
  WorkerKeeper(const WorkerKeeper&) = delete;
  WorkerKeeper& operator=(const WorkerKeeper&) = delete;

  State state() const;
  /// Starts no other process, gives the running one `deadline` to end, then kills it. Returns when
  /// it is gone. Idempotent.
  void Stop(std::chrono::milliseconds deadline);

 private:
  struct Shared;
  explicit WorkerKeeper(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  const ProcessMark process_;
  const std::shared_ptr<Shared> shared_;
  Thread thread_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CHILDREN_WORKER_KEEPER_H_
