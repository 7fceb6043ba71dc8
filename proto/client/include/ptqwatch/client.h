#ifndef PTQWATCH_CLIENT_H_
#define PTQWATCH_CLIENT_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/run_source.h"

namespace ptqwatch {

/// Address, run and credentials for OpenRemoteRun.
struct ClientOptions {
  /// HOST:PORT of `ptqwatch serve`; the default port is 9465.
  std::string address = "localhost:9465";
  /// The run's name at the server, or its run_id. Empty: the server's only run.
  std::string run = {};
  /// Use TLS. Implied by ca_file and certificate_file.
  bool tls = false;
  std::string ca_file = {};  ///< authorities for the server's certificate; empty: the system's
  std::string certificate_file = {};  ///< of this client, PEM, if the server requires one
  std::string private_key_file = {};  ///< of certificate_file, PEM
  std::string token_file = {};        ///< file with the server's token
  /// Timeout of each call except Watch.
  std::chrono::milliseconds timeout{4000};
};

/// Opens a run at a server, for programs other than the trainer, such as a scheduler that acts on
/// verdicts. Exposes no gRPC types.
///
/// Reads the files but does not connect. InvalidArgument, naming the option, for an address that
/// cannot be parsed, a file that cannot be read, a certificate without a key or the reverse, and a
/// timeout that is not positive.
///
/// Every call on the run makes its own connection, which costs about a millisecond on one machine,
/// so the next call after an outage finds the server again. Watch reconnects when its connection is
/// lost and continues after the last report seen. Errors: Unavailable and DeadlineExceeded if no
/// server answers, Unauthenticated if the token is missing or wrong, NotFound for an unknown run,
/// InvalidArgument if the server has several runs and `run` is empty, PermissionDenied for commands
/// that the server does not allow (ServeOptions::allow_control), ResourceExhausted for commands
/// that come too often.
PTQWATCH_EXPORT absl::StatusOr<std::unique_ptr<RunSource>> OpenRemoteRun(
    const ClientOptions& options);

}  // namespace ptqwatch

#endif  // PTQWATCH_CLIENT_H_
