#ifndef PTQWATCH_PROTO_CLIENT_CLIENT_SECURITY_H_
#define PTQWATCH_PROTO_CLIENT_CLIENT_SECURITY_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// What a server is shown and what it must show. Certificates and keys are PEM texts.
struct ClientSecurity {
  bool tls = false;
  std::string roots;        ///< that sign the server's certificate; empty: those of the system
  std::string certificate;  ///< of this client, with its key, where the server asks for one
  std::string key;
  std::string token;
  /// How messages call these members.
  struct Names {
    std::string_view tls = "--tls";
    std::string_view roots = "--ca";
    std::string_view certificate = "--cert";
    std::string_view token = "--token-file";
  };
  Names names = {};
};

/// A file of at most 1 MiB that is not empty, without the newlines at its end. Errors are one line
/// that names the path.
absl::StatusOr<std::string> ReadSecret(const std::string& path);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_CLIENT_CLIENT_SECURITY_H_
