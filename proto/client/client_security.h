#ifndef PTQWATCH_PROTO_CLIENT_CLIENT_SECURITY_H_
#define PTQWATCH_PROTO_CLIENT_CLIENT_SECURITY_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// TLS and the token for calls to a server. Certificates and keys are PEM texts.
struct ClientSecurity {
  bool tls = false;
  std::string roots;        ///< authorities for the server's certificate; empty: the system's
  std::string certificate;  ///< of this client, if the server requires one
  std::string key;
  std::string token;
  /// The names of these members in messages.
  struct Names {
    std::string_view tls = "--tls";
    std::string_view roots = "--ca";
    std::string_view certificate = "--cert";
    std::string_view token = "--token-file";
  };
  Names names = {};
};

/// Reads a file of at most 1 MiB, without the newlines at its end. Errors are one line that names
/// the path; an empty file is one.
absl::StatusOr<std::string> ReadSecret(const std::string& path);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_CLIENT_CLIENT_SECURITY_H_
