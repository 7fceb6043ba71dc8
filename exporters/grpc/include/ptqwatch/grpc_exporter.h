#ifndef PTQWATCH_GRPC_EXPORTER_H_
#define PTQWATCH_GRPC_EXPORTER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/exporter.h"

namespace ptqwatch {

struct GrpcOptions {
  /// "HOST:PORT" or "[IPV6]:PORT". Port 0 takes a free one.
  std::string address = "127.0.0.1:9465";
  /// Serve other machines, too. There is no TLS: whoever reaches the port can read the reports and
  /// ask for snapshots.
  bool allow_remote = false;
  /// Open WatchReports streams; one more gets RESOURCE_EXHAUSTED.
  int max_subscribers = 64;
  /// How many reports a subscriber may be behind, beyond the backlog it asked for. Then it loses
  /// the oldest ones and is told how many. Costs no memory: what it has yet to get is in the
  /// history.
  int queue_reports = 64;
  /// What is kept for those who come late or come back: the newest reports, at most so many and,
  /// but for the newest one, at most so many bytes. At least `queue_reports`.
  int history_reports = 1024;
  int64_t history_bytes = int64_t{64} << 20;
};

/// Serves ptqwatch.v1.MonitorService (see proto/ptqwatch/v1), grpc.health.v1 ("" and
/// "ptqwatch.v1.MonitorService": SERVING from Start until Stop) and server reflection. Every call
/// is answered from memory, on gRPC's threads; none touches the training thread. OnReport only
/// hands the report to a thread of the exporter, which serialises it once for all subscribers. A
/// client that reads slowly, or not at all, loses reports (counted as dropped: "slow_subscriber")
/// and costs nobody else anything.
///
/// Leaves the gRPC of the trainer itself alone: no plugin, health service or log function is set
/// for the whole process. An address that cannot be served is found without gRPC, which would print
/// it on stderr; what gRPC still may print are errors of the machine, e.g. no descriptors left for
/// a new connection, or a port that another process takes within the microseconds between the look
/// at it and gRPC's own binding.
///
/// Do not fork without exec after Create: gRPC does not survive it.
class GrpcExporter : public Exporter {
 public:
  /// Binds at once; calls get UNAVAILABLE until Start. InvalidArgument for an option that is out of
  /// range, an address that cannot be parsed or that is not a loopback address; Unavailable (with
  /// the address and the reason) for one that does not resolve or cannot be bound.
  static absl::StatusOr<std::unique_ptr<GrpcExporter>> Create(GrpcOptions options);
  /// The address that is served, with the port that was taken.
  virtual const std::string& address() const = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_GRPC_EXPORTER_H_
