#ifndef PTQWATCH_CHILDREN_SERVER_LAUNCH_H_
#define PTQWATCH_CHILDREN_SERVER_LAUNCH_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/server_hello.h"

namespace ptqwatch::internal {

/// A server process, seen from the trainer. Its end shows on a pipe that only the server holds
/// open, so the trainer has no child to wait for.
///
/// For a few milliseconds the trainer has one child, the launcher, which forks once and ends. It is
/// waited for by its pid. It may already be gone, because the trainer may ignore SIGCHLD or wait
/// for every child itself. Not thread-safe.
class LaunchedServer {
 public:
  /// Runs posix_spawn of `program` (argv[0]) with `arguments` and `environment`. Appends output to
  /// `log_file`, after truncating it if it exceeds 1 MiB. Unavailable if the system cannot start a
  /// process.
  static absl::StatusOr<LaunchedServer> Launch(const std::string& program,
                                               const std::vector<std::string>& arguments,
                                               const std::vector<std::string>& environment,
                                               const std::string& log_file);
  LaunchedServer(LaunchedServer&& other) noexcept;
  LaunchedServer& operator=(LaunchedServer&&) = delete;
  /// Lets the server go on, unless it has not said hello; then it ends.
  ~LaunchedServer();

  /// The read end of the pipe; readable if Read has something to do.
  int descriptor() const { return pipe_; }
  /// Reads what the pipe holds and waits for the launcher, without blocking.
  void Read();
  /// Set once the whole line has been read. An error is that of HelloFromJson.
  const std::optional<absl::StatusOr<ServerHello>>& hello() const { return hello_; }
  /// Whether every process has closed the other end.
  bool ended() const { return ended_; }
  /// Waits without blocking for the launcher, and for a server that has ended and is a child of
  /// this process. False while one of them is still ending: its files are closed before it can be
  /// waited for.
  bool WaitForChildren();

 private:
  LaunchedServer(int pipe, pid_t launcher) : pipe_(pipe), launcher_(launcher) {}

  int pipe_;
  pid_t launcher_;    // 0: already waited for
  pid_t server_ = 0;  // 0: already waited for, or has not said hello
  std::string line_;
  std::optional<absl::StatusOr<ServerHello>> hello_;
  bool ended_ = false;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CHILDREN_SERVER_LAUNCH_H_
