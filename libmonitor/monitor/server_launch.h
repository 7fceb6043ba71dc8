#ifndef PTQWATCH_MONITOR_SERVER_LAUNCH_H_
#define PTQWATCH_MONITOR_SERVER_LAUNCH_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/server_hello.h"

namespace ptqwatch::internal {

/// A server process from the trainer's side. Its end is seen by the pipe, which only the server
/// holds open: no child of the trainer's is left to wait for.
///
/// The trainer's process has one child for some milliseconds, the launcher, which forks once and
/// ends. It is waited for by its pid, and that it may be gone is expected: the trainer may ignore
/// SIGCHLD or wait for every child itself. One thread.
class LaunchedServer {
 public:
  /// posix_spawn of `program` (argv[0]) with `arguments` and `environment`. Output goes to
  /// `log_file`, which begins anew above 1 MiB. Unavailable if the system gives no process.
  static absl::StatusOr<LaunchedServer> Launch(const std::string& program,
                                               const std::vector<std::string>& arguments,
                                               const std::vector<std::string>& environment,
                                               const std::string& log_file);
  LaunchedServer(LaunchedServer&& other) noexcept;
  LaunchedServer& operator=(LaunchedServer&&) = delete;
  /// Lets go of the server, which goes on; one that has not said hello ends.
  ~LaunchedServer();

  /// The read end of the pipe: readable when there is something for Read.
  int descriptor() const { return pipe_; }
  /// Takes what the pipe has and waits for the launcher, without blocking.
  void Read();
  /// Once the whole line has come; the error of HelloFromJson.
  const std::optional<absl::StatusOr<ServerHello>>& hello() const { return hello_; }
  /// Whether no process holds the other end any more.
  bool ended() const { return ended_; }
  /// Waits for the launcher, and for a server that has ended and is this process's child, without
  /// blocking. False while one of them is still ending: its files are closed before it can be
  /// waited for.
  bool WaitForChildren();

 private:
  LaunchedServer(int pipe, pid_t launcher) : pipe_(pipe), launcher_(launcher) {}

  int pipe_;
  pid_t launcher_;    // 0: has been waited for
  pid_t server_ = 0;  // likewise; or has not said hello
  std::string line_;
  std::optional<absl::StatusOr<ServerHello>> hello_;
  bool ended_ = false;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_SERVER_LAUNCH_H_
