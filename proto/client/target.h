#ifndef PTQWATCH_PROTO_CLIENT_TARGET_H_
#define PTQWATCH_PROTO_CLIENT_TARGET_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "base/net_address.h"
#include "client/client_security.h"
#include "ptqwatch/run_source.h"

namespace ptqwatch::internal {

/// Where gRPC is served by default; see ServeOptions.
inline constexpr int kDefaultGrpcPort = 9465;

/// The run that a command is about: at the address of a server, or in a run directory.
struct Target {
  Target() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): an address is the usual case.
  Target(HostPort server) : address(std::move(server)) {}

  HostPort address;         ///< unless run_dir is set
  std::string run_dir;      ///< not empty: the run is seen there
  std::string run;          ///< as the server names it; empty: its only one
  ClientSecurity security;  ///< for the server at `address`

  /// The address or directory, for messages.
  std::string ToString() const { return run_dir.empty() ? address.ToString() : run_dir; }
};

/// The run directory, or the run at its server.
std::unique_ptr<RunSource> OpenRun(const Target& target, Clock* clock = Clock::Real());

/// Keeps gRPC and protobuf from printing, unless the environment sets GRPC_VERBOSITY: what went
/// wrong is in the status of a call.
void SilenceGrpc();

/// Reads what a person gives: an address as ParseServerAddress takes it, or the path of a directory
/// that exists or has a slash in it. InvalidArgument, one printable line.
absl::StatusOr<Target> ParseTarget(const std::string& text);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_CLIENT_TARGET_H_
