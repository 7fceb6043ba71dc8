#ifndef PTQWATCH_SERVER_SECURITY_H_
#define PTQWATCH_SERVER_SECURITY_H_

#include <string>

namespace ptqwatch {

/// Controls who may talk to a server and whether the network can read the traffic. Secrets are
/// never options: each option is the path of a file, which is checked when the server is created.
/// Empty: the feature is off.
struct ServerSecurity {
  /// The server's certificate chain and private key, PEM, for TLS 1.2 or later. Set both or
  /// neither. Replaced files are read again within ten seconds.
  std::string certificate_file = {};
  std::string private_key_file = {};
  /// Clients must present a certificate signed by one of these authorities, PEM (mutual TLS). Needs
  /// a server certificate.
  std::string client_ca_file = {};
  /// Clients must send "authorization: Bearer TOKEN" with the token in this file: 16 to 512 visible
  /// ASCII characters, and a newline at most at the end. Read once. Over HTTP it is also the
  /// password of a browser's login, with any user name. A server that other machines can reach
  /// needs a certificate, too, because they could read the token otherwise.
  std::string token_file = {};

  bool tls() const { return !certificate_file.empty(); }
};

}  // namespace ptqwatch

#endif  // PTQWATCH_SERVER_SECURITY_H_
