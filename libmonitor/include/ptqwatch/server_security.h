#ifndef PTQWATCH_SERVER_SECURITY_H_
#define PTQWATCH_SERVER_SECURITY_H_

#include <string>

namespace ptqwatch {

/// Who may talk to a server, and what others on the network can read. All are paths
/// of files, which are checked when the server is created: secrets are never options themselves.
/// Empty: none.
struct ServerSecurity {
  /// Certificate chain and private key of the server, PEM: TLS 1.2 or later. Both or neither.
  /// Files that are replaced are read again within ten seconds.
  std::string certificate_file = {};
  std::string private_key_file = {};
  /// Clients must show a certificate that one of these authorities signed, PEM (mutual TLS). Needs
  /// a certificate of the server.
  std::string client_ca_file = {};
  /// Clients must send "authorization: Bearer TOKEN" with the token in this file, of 16 to 512
  /// characters without whitespace. A newline at its end is left out. Read once. Over HTTP it is
  /// also the password of a browser's login, for any user name. A server that other machines can
  /// reach needs a certificate, too: they would read the token.
  std::string token_file = {};

  bool tls() const { return !certificate_file.empty(); }
};

}  // namespace ptqwatch

#endif  // PTQWATCH_SERVER_SECURITY_H_
