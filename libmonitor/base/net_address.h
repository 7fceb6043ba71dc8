#ifndef PTQWATCH_BASE_NET_ADDRESS_H_
#define PTQWATCH_BASE_NET_ADDRESS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"

namespace ptqwatch::internal {

/// A host and a port as written by a person, without any lookup.
struct PTQWATCH_EXPORT HostPort {
  std::string host;  ///< a name or an IP literal, IPv6 without brackets
  int port = 0;
  /// "HOST:PORT" or "[IPV6]:PORT".
  std::string ToString() const;
};

/// Parses an address to listen on: "HOST:PORT" or "[IPV6]:PORT"; port 0 selects a free port.
/// InvalidArgument with the address and the mistake; `kind` names the server ("http", "grpc").
absl::StatusOr<HostPort> ParseListenAddress(std::string_view kind, std::string_view address);

/// Parses an address to connect to: HOST:PORT, :PORT (this machine), [IPV6]:PORT, or HOST or [IPV6]
/// alone with `default_port`. InvalidArgument, in one printable line with the text and the mistake.
PTQWATCH_EXPORT absl::StatusOr<HostPort> ParseServerAddress(std::string_view text,
                                                            int default_port);

/// A TCP socket bound to an address; closed with this object unless released.
class PTQWATCH_EXPORT BoundSocket {
 public:
  BoundSocket(int descriptor, std::string numeric_host, int port);
  BoundSocket(BoundSocket&& other) noexcept;
  BoundSocket& operator=(BoundSocket&&) = delete;
  ~BoundSocket();

  int descriptor() const { return descriptor_; }
  /// Returns the descriptor, which the caller must close.
  int Release();
  /// An address that needs no lookup: "127.0.0.1" or "[::1]".
  const std::string& numeric_host() const { return numeric_host_; }
  int port() const { return port_; }

 private:
  int descriptor_;
  std::string numeric_host_;
  int port_;
};

/// The address that a server of this process listens on.
struct ListenOptions {
  std::string_view kind;  ///< of server: "http", "grpc"
  std::string address;
  /// If false, only loopback addresses are allowed.
  bool allow_remote = false;
  /// The option that sets allow_remote, for the message: "ServeOptions::allow_remote".
  std::string_view allow_remote_option = {};
};

/// Looks the host up and binds a socket to the first of its addresses that can be bound, without
/// listening. Sets SO_REUSEADDR, so that a restarted trainer need not wait until connections of its
/// former process time out. Does not set SO_REUSEPORT, because two servers must not share a port.
///
/// InvalidArgument if the address cannot be parsed or, unless `allow_remote`, the host has no
/// loopback address; Unavailable if the host does not resolve or cannot be bound. All messages name
/// the address.
PTQWATCH_EXPORT absl::StatusOr<BoundSocket> BindListenAddress(const ListenOptions& options);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_NET_ADDRESS_H_
