#ifndef PTQWATCH_SECURITY_CHECK_SECURITY_H_
#define PTQWATCH_SECURITY_CHECK_SECURITY_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ptqwatch/server_security.h"

namespace ptqwatch::internal {

/// The token that clients must send.
class BearerToken {
 public:
  BearerToken() = default;
  explicit BearerToken(std::string token) : token_(std::move(token)) {}

  /// Whether `authorization`, the value of that header, is "Bearer TOKEN". Compares wrong tokens of
  /// the right length in constant time. Always true if there is no token.
  bool Admits(std::string_view authorization) const;
  /// Like Admits, but also accepts a browser's login (RFC 7617) with any user name and the token as
  /// the password.
  bool AdmitsLogin(std::string_view authorization) const;
  bool empty() const { return token_.empty(); }

 private:
  bool Equals(std::string_view token) const;

  std::string token_;
};

/// Reads and checks the files of `security` and returns its token. Errors name the field, as
/// "`options`.security.FIELD", and its value: InvalidArgument if fields need each other, a file has
/// the wrong content, the key belongs to another certificate, or a certificate is not valid now;
/// NotFound or PermissionDenied if a file cannot be read. Set `remote` if other machines can reach
/// the server: a token then needs TLS.
absl::StatusOr<BearerToken> CheckSecurity(const ServerSecurity& security, std::string_view options,
                                          bool remote);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SECURITY_CHECK_SECURITY_H_
