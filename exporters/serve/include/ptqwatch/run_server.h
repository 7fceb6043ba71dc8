#ifndef PTQWATCH_RUN_SERVER_H_
#define PTQWATCH_RUN_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/serve_options.h"

namespace ptqwatch {

/// What `ptqwatch serve` is made of: follows run directories and serves what it finds there over
/// HTTP and gRPC (ServeOptions), reports of any age included. Until the past of a run has been
/// read, /metrics has its status alone and /readyz is 503. Each run is named after the last part of
/// its directory's path, or after all of it if two would have the same name: the label `run` on
/// /metrics, `run_id` of gRPC requests.
///
/// For a process of its own: gRPC and OpenSSL meet whatever clients send, and are not armoured. A
/// trainer sets MonitorOptions::serve instead, unless it cannot start a process. Thread-safe.
///
/// Cost: a thread for each run, one for HTTP and those of gRPC; 32 MiB for reports, of which older
/// ones lie in unlinked files in $TMPDIR, else /tmp. Sets gRPC's health and reflection plugins for
/// the process. Do not fork without exec after Create: gRPC does not survive it.
class PTQWATCH_EXPORT RunServer {
 public:
  /// Binds and begins to follow; the directories need not exist yet. Of the options, `program`,
  /// `environment`, `linger` and `max_memory` are for those who start a server as a process.
  /// InvalidArgument for an option that is wrong, NotFound or PermissionDenied for a file of
  /// `security`, Unavailable for an address that cannot be served; all name the field and its
  /// value.
  static absl::StatusOr<std::unique_ptr<RunServer>> Create(const std::vector<std::string>& run_dirs,
                                                           const ServeOptions& options);
  /// Serves one run, which needs no name: its series have no label `run`. A server beside a trainer
  /// does the same.
  static absl::StatusOr<std::unique_ptr<RunServer>> CreateForOne(const std::string& run_dir,
                                                                 const ServeOptions& options);
  /// Stop().
  virtual ~RunServer() = default;

  /// The host as it was given and the port that was taken; empty if that is not served.
  virtual std::string http_address() const = 0;
  virtual std::string grpc_address() const = 0;
  /// Ends streams, connections and threads within about a second; idempotent.
  virtual void Stop() = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_RUN_SERVER_H_
