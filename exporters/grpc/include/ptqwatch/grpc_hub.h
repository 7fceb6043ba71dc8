#ifndef PTQWATCH_GRPC_HUB_H_
#define PTQWATCH_GRPC_HUB_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/grpc_exporter.h"

namespace ptqwatch {

/// Serves any number of runs over gRPC at one address, as GrpcExporter serves one: for a process
/// that follows runs and does not train. Thread-safe.
class PTQWATCH_EXPORT GrpcHub {
 public:
  /// As GrpcExporter::Create, but with an address that cannot be served it fails whatever
  /// `on_failure` is. The limits of the history are those of each run, max_subscribers is that of
  /// each run and of all connections.
  static absl::StatusOr<std::unique_ptr<GrpcHub>> Create(GrpcOptions options);
  /// Stop(2 s).
  virtual ~GrpcHub() = default;

  /// The address that is served, with the port that was taken.
  virtual const std::string& address() const = 0;
  /// One more run, by this name. Clients see it from the exporter's Start to its Stop. OnReport and
  /// OnEvent serialise at once, on the caller's thread; what they get before Start is the past of
  /// the run. An event kStopped ends the streams of those
  /// who watch, once they have all there is; they may come back. AlreadyExists for a name that is
  /// served. The hub must outlive the exporter, and what its Start was given must outlive the hub's
  /// Stop.
  virtual absl::StatusOr<std::unique_ptr<Exporter>> AddRun(const std::string& run) = 0;
  /// Ends all streams and connections within the deadline; idempotent.
  virtual void Stop(std::chrono::milliseconds deadline) = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_GRPC_HUB_H_
