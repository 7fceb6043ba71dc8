#ifndef PTQWATCH_CLIENT_H_
#define PTQWATCH_CLIENT_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/run_source.h"

namespace ptqwatch {

/// Where a server of ptqwatch.v1 is, which of its runs is meant, and how to talk to it.
struct ClientOptions {
  /// HOST:PORT of `ptqwatch serve`; the port is 9465 unless given.
  std::string address = "localhost:9465";
  /// The run's name at the server, or its run_id. Empty: the server's only run.
  std::string run = {};
  /// TLS; also with ca_file or certificate_file.
  bool tls = false;
  std::string ca_file = {};           ///< that signs the server's certificate; empty: the system's
  std::string certificate_file = {};  ///< of this client, PEM, for servers that ask for one
  std::string private_key_file = {};  ///< of certificate_file
  std::string token_file = {};        ///< the server's token
  /// How long a call may take, Watch aside.
  std::chrono::milliseconds timeout{4000};
};

/// A run at a server, for other programs than the trainer: a scheduler that acts on verdicts, a
/// notebook's back end. They see the library's types and none of gRPC's.
///
/// Reads the files and connects to nothing. InvalidArgument, naming the option, for an address that
/// cannot be parsed, a file that cannot be read, one of certificate and key alone, and a timeout
/// that is not positive.
///
/// Every call of the run makes a connection of its own, about a millisecond on one machine, so a
/// server that was away is found again by the next call. Watch connects again when its connection
/// is lost, and goes on after the last report seen. Errors: Unavailable and DeadlineExceeded if no
/// server answers, Unauthenticated for its token, NotFound for an unknown run, InvalidArgument if
/// the server has several and none is named, PermissionDenied for commands that it does not allow
/// (ServeOptions::allow_control), ResourceExhausted for commands that come too often.
PTQWATCH_EXPORT absl::StatusOr<std::unique_ptr<RunSource>> OpenRemoteRun(
    const ClientOptions& options);

}  // namespace ptqwatch

#endif  // PTQWATCH_CLIENT_H_
