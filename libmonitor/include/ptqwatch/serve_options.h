#ifndef PTQWATCH_SERVE_OPTIONS_H_
#define PTQWATCH_SERVE_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ptqwatch/config.h"
#include "ptqwatch/server_security.h"

namespace ptqwatch {

/// How `ptqwatch serve` serves the run that starts it (MonitorOptions::serve). The server is a
/// separate process that reads the run directory. Clients connect only to that process; if it ends,
/// it is started again and no report is lost.
struct ServeOptions {
  /// HOST:PORT of /metrics, the live page and the HTTP API. Port 0 picks a free port. Empty: off.
  std::string http = "127.0.0.1:9464";
  /// HOST:PORT of ptqwatch.v1.MonitorService, with the same rules.
  std::string grpc = "127.0.0.1:9465";
  /// Allow addresses other than loopback.
  bool allow_remote = false;
  /// Accept commands over gRPC from every client that `security` admits.
  bool allow_control = false;
  /// Host names under which browsers may load the live page, in addition to localhost and IP
  /// addresses.
  std::vector<std::string> allowed_hosts = {};
  ServerSecurity security = {};
  /// Number of layers with their own series on /metrics; all others are merged into one.
  int max_layers = 64;
  /// While the server runs, this file gives Prometheus its address of `http` (file_sd_configs).
  /// Replaced in one step and readable by every user. With a wildcard address it has the name of
  /// this machine. Empty: no file.
  std::string targets_file = {};

  /// Path of the program `ptqwatch`. If empty: PTQWATCH_PROGRAM from the environment, else
  /// `ptqwatch` in the folder of the running program, in ../bin of the shared library, or in an
  /// absolute folder of PATH. A file that users other than root and the current one may write is
  /// refused.
  std::string program = {};
  /// {name, value} pairs added to the environment that the server inherits: HOME, PATH, LANG, LC_*,
  /// TZ, TMPDIR and SSL_CERT_*.
  std::vector<std::pair<std::string, std::string>> environment = {};
  /// How long the server keeps serving after the run's monitor or process has ended.
  std::chrono::seconds linger{60};
  /// Maximum bytes of data (RLIMIT_DATA) of the server. Keep it well below the memory limit of a
  /// container: with memory.oom.group, a server killed for lack of memory takes the trainer with
  /// it.
  int64_t max_memory = int64_t{512} << 20;
};

/// InvalidArgument naming the field and its value.
PTQWATCH_EXPORT absl::Status Validate(const ServeOptions& options);

}  // namespace ptqwatch

#endif  // PTQWATCH_SERVE_OPTIONS_H_
