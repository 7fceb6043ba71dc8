#ifndef PTQWATCH_SECURITY_CHECK_SECURITY_H_
#define PTQWATCH_SECURITY_CHECK_SECURITY_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ptqwatch/server_security.h"

namespace ptqwatch::internal {

/// What a client must send to be let in.
class BearerToken {
 public:
  BearerToken() = default;
  explicit BearerToken(std::string token) : token_(std::move(token)) {}

  /// Whether this is the value "Bearer TOKEN" of a header "authorization". Takes as long for any
  /// wrong token of the same length. True for everybody where there is no token.
  bool Admits(std::string_view authorization) const;
  /// Also where it is that of a browser's login (RFC 7617), with the token as the password of
  /// whatever user.
  bool AdmitsLogin(std::string_view authorization) const;
  bool empty() const { return token_.empty(); }

 private:
  bool Equals(std::string_view token) const;

  std::string token_;
};

/// Reads and checks the files of `security`. Errors name the field, as "`options`.security.FIELD",
/// and its value: InvalidArgument for fields that exclude or need each other, for a file that is
/// not what it should be, a key of another certificate, and a certificate that is not valid now;
/// NotFound or PermissionDenied for one that cannot be read. `remote`: other machines can reach the
/// server.
absl::StatusOr<BearerToken> CheckSecurity(const ServerSecurity& security, std::string_view options,
                                          bool remote);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SECURITY_CHECK_SECURITY_H_
