#ifndef PTQWATCH_GRPC_LISTEN_ADDRESS_H_
#define PTQWATCH_GRPC_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

struct ListenAddress {
  std::string host;     ///< as it was given
  std::string numeric;  ///< "127.0.0.1:9465" or "[::1]:9465": nothing is left to look up
};

/// Reads "HOST:PORT" or "[IPV6]:PORT", looks the host up, and tries whether the port can be bound
/// (it is free again on return): what gRPC would otherwise say on stderr. InvalidArgument for what
/// cannot be parsed and, unless `allow_remote`, for a host that has no loopback address;
/// Unavailable where it does not resolve or cannot be bound. All name the address.
absl::StatusOr<ListenAddress> FindListenAddress(const std::string& address, bool allow_remote);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_LISTEN_ADDRESS_H_
