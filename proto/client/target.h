#ifndef PTQWATCH_PROTO_CLIENT_TARGET_H_
#define PTQWATCH_PROTO_CLIENT_TARGET_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/net_address.h"
#include "client/client_security.h"
#include "ptqwatch/run_source.h"

namespace ptqwatch::internal {

/// Default gRPC port; see ServeOptions.
inline constexpr int kDefaultGrpcPort = 9465;

/// The run for a command: at the address of a server, or in a run directory.
struct Target {
  Target() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): an address is the usual case.
  Target(HostPort server) : address(std::move(server)) {}

  HostPort address;         ///< unused if run_dir is set
  std::string run_dir;      ///< if not empty, the run in this directory
  std::string run;          ///< the server's name for the run; empty: its only run
  ClientSecurity security;  ///< for the server at `address`

  /// The address or directory, for messages.
  std::string ToString() const { return run_dir.empty() ? address.ToString() : run_dir; }
};

/// Opens the run directory, or the run at its server.
std::unique_ptr<RunSource> OpenRun(const Target& target, Clock* clock = Clock::Real());

/// Keeps gRPC and protobuf from printing, unless the environment sets GRPC_VERBOSITY. Errors are
/// still in the status of each call.
void SilenceGrpc();

/// Parses user input: an address as in ParseServerAddress, or a path, which has a slash or is an
/// existing directory. InvalidArgument with one printable line.
absl::StatusOr<Target> ParseTarget(const std::string& text);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_CLIENT_TARGET_H_
