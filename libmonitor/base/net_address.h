#ifndef PTQWATCH_BASE_NET_ADDRESS_H_
#define PTQWATCH_BASE_NET_ADDRESS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// Where a server listens.
struct HostPort {
  std::string host;          ///< without brackets
  std::string written_host;  ///< as given
  int port = 0;              ///< 0: any that is free
};

/// Reads "HOST:PORT" or "[IPV6]:PORT". InvalidArgument saying what is wrong with which address of
/// which `kind` of server ("http", "grpc").
absl::StatusOr<HostPort> ParseHostPort(std::string_view kind, const std::string& address);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_NET_ADDRESS_H_
