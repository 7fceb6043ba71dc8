#ifndef PTQWATCH_BASE_NET_ADDRESS_H_
#define PTQWATCH_BASE_NET_ADDRESS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"

namespace ptqwatch::internal {

/// A host and a port as a person writes them; nothing has been looked up.
struct PTQWATCH_EXPORT HostPort {
  std::string host;  ///< a name or an IP literal, IPv6 without brackets
  int port = 0;
  /// "HOST:PORT" or "[IPV6]:PORT".
  std::string ToString() const;
};

/// Reads where a server listens: "HOST:PORT" or "[IPV6]:PORT", port 0 for a free one.
/// InvalidArgument with the address and what is wrong with it; `kind` names the server ("http",
/// "grpc").
absl::StatusOr<HostPort> ParseListenAddress(std::string_view kind, std::string_view address);

/// Reads where a client connects: HOST:PORT, :PORT (this machine), [IPV6]:PORT, and HOST or [IPV6]
/// alone with `default_port`. InvalidArgument, one printable line with the text and what is wrong
/// with it.
PTQWATCH_EXPORT absl::StatusOr<HostPort> ParseServerAddress(std::string_view text,
                                                            int default_port);

/// A TCP socket bound to an address; closed with this object unless it was released.
class PTQWATCH_EXPORT BoundSocket {
 public:
  BoundSocket(int descriptor, std::string numeric_host, int port);
  BoundSocket(BoundSocket&& other) noexcept;
  BoundSocket& operator=(BoundSocket&&) = delete;
  ~BoundSocket();

  int descriptor() const { return descriptor_; }
  /// The descriptor, which is the caller's to close from here on.
  int Release();
  /// "127.0.0.1" or "[::1]": nothing is left to look up.
  const std::string& numeric_host() const { return numeric_host_; }
  int port() const { return port_; }

 private:
  int descriptor_;
  std::string numeric_host_;
  int port_;
};

/// Which address a server of this process takes.
struct ListenOptions {
  std::string_view kind;  ///< of server: "http", "grpc"
  std::string address;
  /// Without it only loopback addresses are taken.
  bool allow_remote = false;
  /// The option that sets allow_remote, for the message: "GrpcOptions::allow_remote".
  std::string_view allow_remote_option;
};

/// Looks the host up and binds a socket to the first of its addresses that can be bound. It does
/// not listen yet. SO_REUSEADDR is set: a trainer that restarts need not wait until connections of
/// its former process time out. SO_REUSEPORT is not: two servers must not share a port.
///
/// InvalidArgument for an address that cannot be parsed and, unless `allow_remote`, for a host
/// without a loopback address; Unavailable where the host does not resolve or cannot be bound. All
/// messages name the address.
PTQWATCH_EXPORT absl::StatusOr<BoundSocket> BindListenAddress(const ListenOptions& options);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_NET_ADDRESS_H_
