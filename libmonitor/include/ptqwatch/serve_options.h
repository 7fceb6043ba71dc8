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

/// How `ptqwatch serve` serves a run that starts it (MonitorOptions::serve). The server is a
/// process of its own that reads the run directory: clients reach that process alone, and if it
/// ends, it is started again without a report lost.
struct ServeOptions {
  /// HOST:PORT of /metrics, the live page and the HTTP API. Port 0: any free one. Empty: none.
  std::string http = "127.0.0.1:9464";
  /// HOST:PORT of ptqwatch.v1.MonitorService. Likewise.
  std::string grpc = "127.0.0.1:9465";
  /// Listen on addresses other than loopback.
  bool allow_remote = false;
  /// Take commands over gRPC, from every client that the security below lets in.
  bool allow_control = false;
  /// Names by which browsers may ask for the live page, beside localhost and IP addresses.
  std::vector<std::string> allowed_hosts = {};
  ServerSecurity security = {};
  /// Layers with series of their own on /metrics; the others are folded into one.
  int max_layers = 64;

  /// Path of the program `ptqwatch`. Empty: PTQWATCH_PROGRAM of the environment, else `ptqwatch` in
  /// the folder of the running program, in ../bin of the shared library, or in an absolute folder
  /// of PATH. A file that users other than root and this one may write is refused.
  std::string program = {};
  /// {name, value} beside the variables that the server inherits: HOME, PATH, LANG, LC_*, TZ,
  /// TMPDIR and SSL_CERT_*.
  std::vector<std::pair<std::string, std::string>> environment = {};
  /// How long the server shows the end of a run after its monitor or its process has ended.
  std::chrono::seconds linger{60};
  /// Bytes of data (RLIMIT_DATA) that the server may use. Keep it well below the memory limit of a
  /// container: with memory.oom.group, a server killed for memory takes the trainer with it.
  int64_t max_memory = int64_t{512} << 20;
};

/// InvalidArgument naming the field and its value.
PTQWATCH_EXPORT absl::Status Validate(const ServeOptions& options);

}  // namespace ptqwatch

#endif  // PTQWATCH_SERVE_OPTIONS_H_
