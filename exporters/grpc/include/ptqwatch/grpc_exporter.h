#ifndef PTQWATCH_GRPC_EXPORTER_H_
#define PTQWATCH_GRPC_EXPORTER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/server_security.h"

namespace ptqwatch {

struct GrpcOptions {
  /// "HOST:PORT" or "[IPV6]:PORT". Port 0 takes a free one.
  std::string address = "127.0.0.1:9465";
  /// Serve other machines, too. Without `security`, whoever reaches the port can read the reports.
  bool allow_remote = false;
  /// TLS, client certificates and a token. A client without the token gets UNAUTHENTICATED from
  /// every call of MonitorService; health and reflection answer all.
  ServerSecurity security = {};
  /// Take commands, too: whoever reaches the port, which on a shared machine is every user of it,
  /// can request snapshots and slices, change the interval and pause the monitor. Without it,
  /// commands come by the run directory (`ptqwatch snapshot RUN_DIR`), from its owner alone.
  bool allow_control = false;
  /// Open streams of WatchReports and WatchEvents; one more gets RESOURCE_EXHAUSTED.
  int max_subscribers = 64;
  /// How many reports a subscriber may lag behind, beyond the backlog it asked for. Then it loses
  /// the oldest ones, and the stream says how many. Costs no memory: they are in the history
  /// anyway.
  int queue_reports = 64;
  /// Limits of the history from which late and returning subscribers read: the newest reports, up
  /// to this number (at least `queue_reports`) and up to this many bytes. The newest is always
  /// kept. Reports of earlier processes of the run are in its journal alone (`ptqwatch serve`).
  int history_reports = 1024;
  int64_t history_bytes = int64_t{64} << 20;
  /// So many bytes of the history are held in memory; older reports lie in a file without a name in
  /// $TMPDIR, else /tmp. By default none do.
  int64_t history_memory_bytes = int64_t{64} << 20;
  /// With kInert, an exporter whose address is in use or cannot be served is created all the same:
  /// address() is empty, and Monitor::Create leaves it out and says why.
  OnFailure on_failure = OnFailure::kInert;
};

/// Serves ptqwatch.v1.MonitorService (see proto/ptqwatch/v1), grpc.health.v1 ("" and
/// "ptqwatch.v1.MonitorService": SERVING from Start until Stop) and server reflection. Every call
/// is answered from memory, on gRPC's threads; none touches the training thread. OnReport and
/// OnEvent only queue; a thread of the exporter serialises each report once for all subscribers. A
/// client that does not read fast enough loses reports (counted as dropped, "slow_subscriber") and
/// affects no other client. Thread-safe.
///
/// The trainer's own use of gRPC is not affected: no plugin, health service or log function is set
/// for the process. An address that cannot be served is found before gRPC would print it on stderr.
/// gRPC may still print errors of the machine, and a line about a client that resets its connection
/// while it is accepted.
///
/// Do not fork without exec after Create: gRPC does not survive it.
class PTQWATCH_EXPORT GrpcExporter : public Exporter {
 public:
  /// Binds at once; calls get UNAVAILABLE until Start. InvalidArgument for an option out of range,
  /// an address that cannot be parsed, one that is not a loopback address unless allow_remote, and
  /// a file of `security` that cannot be used. With on_failure = kError also Unavailable, with the
  /// address and the reason, for one that does not resolve or cannot be bound.
  static absl::StatusOr<std::unique_ptr<GrpcExporter>> Create(GrpcOptions options);
  /// The address that is served, with the port that was taken; empty where none is.
  virtual const std::string& address() const = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_GRPC_EXPORTER_H_
