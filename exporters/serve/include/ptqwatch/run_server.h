#ifndef PTQWATCH_RUN_SERVER_H_
#define PTQWATCH_RUN_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/serve_options.h"

namespace ptqwatch {

/// The server behind `ptqwatch serve`. Follows run directories and serves their reports, old and
/// new, over HTTP and gRPC (ServeOptions). Until the journal of a run has been read, /metrics shows
/// only its status and newest report, and /readyz returns 503. Each run is named after the last
/// part of its directory's path, or after the whole path if two runs would share a name. The name
/// is the label `run` on /metrics and a valid `run_id` in gRPC requests.
///
/// Run it in a process of its own: gRPC and OpenSSL are exposed to whatever clients send. A trainer
/// should set MonitorOptions::serve instead, unless it cannot start a process. Thread-safe.
///
/// Cost: one thread per run, one for HTTP and the threads of gRPC; 32 MiB for reports, with older
/// ones in unlinked files in $TMPDIR, else /tmp. Installs gRPC's health and reflection plugins for
/// the whole process. Do not fork without exec after Create: gRPC does not survive it.
class PTQWATCH_EXPORT RunServer {
 public:
  /// Binds and starts to follow the directories, which need not exist yet. Ignores the options
  /// `program`, `environment`, `linger` and `max_memory`, which apply only to a server started as a
  /// process. InvalidArgument for an invalid option, NotFound or PermissionDenied for a file of
  /// `security`, Unavailable for an address that cannot be bound, the system's error for
  /// `targets_file`; the message names the field and its value.
  static absl::StatusOr<std::unique_ptr<RunServer>> Create(const std::vector<std::string>& run_dirs,
                                                           const ServeOptions& options);
  /// Serves one run without a name: its series have no label `run`. The server beside a trainer
  /// does this.
  static absl::StatusOr<std::unique_ptr<RunServer>> CreateForOne(const std::string& run_dir,
                                                                 const ServeOptions& options);
  /// Calls Stop().
  virtual ~RunServer() = default;

  /// The host from the options with the port in use; empty if the protocol is not served.
  virtual std::string http_address() const = 0;
  virtual std::string grpc_address() const = 0;
  /// Ends streams, connections and threads within about a second; idempotent.
  virtual void Stop() = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_RUN_SERVER_H_
