#ifndef PTQWATCH_TOOLS_PTQWATCH_ADDRESS_H_
#define PTQWATCH_TOOLS_PTQWATCH_ADDRESS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// Where a trainer serves gRPC unless it was told otherwise.
inline constexpr int kDefaultGrpcPort = 9465;

struct ServerAddress {
  std::string host;  ///< a name or an IP literal, IPv6 without brackets
  int port = kDefaultGrpcPort;
  /// "HOST:PORT" or "[IPV6]:PORT".
  std::string ToString() const;
};

/// Reads HOST:PORT, :PORT (this machine), [IPV6]:PORT, and HOST or [IPV6] alone (default port).
/// InvalidArgument, one line with the text and what is wrong with it.
absl::StatusOr<ServerAddress> ParseServerAddress(std::string_view text);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_ADDRESS_H_
