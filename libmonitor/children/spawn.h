#ifndef PTQWATCH_CHILDREN_SPAWN_H_
#define PTQWATCH_CHILDREN_SPAWN_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace ptqwatch::internal {

struct SpawnOptions {
  std::string program = {};  ///< absolute path; argv[0]
  std::vector<std::string> arguments = {};
  std::vector<std::string> environment = {};  ///< "NAME=VALUE"
  /// Descriptors that the process gets as 3, 4, ...; all others are closed.
  std::vector<int> files = {};
  /// Output is appended to this file, which is truncated first if it exceeds 1 MiB. If empty, the
  /// process writes to this process's output.
  std::string log_file = {};
  bool new_session = false;  ///< Ctrl-C in a terminal does not reach the process
};

/// Starts a process with posix_spawn: none of its signals is blocked, handled or ignored, and its
/// standard input is empty. Returns an error number, 0 if the process has started. Thread-safe.
int Spawn(const SpawnOptions& options, pid_t* process);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CHILDREN_SPAWN_H_
