#ifndef PTQWATCH_HTTP_LOGIN_GUARD_H_
#define PTQWATCH_HTTP_LOGIN_GUARD_H_

#include <optional>
#include <utility>

#include "http/http_message.h"
#include "security/check_security.h"

namespace ptqwatch::internal {

/// Admits only requests with the server's token, sent as a bearer token or as the password of a
/// basic login. Thread-safe.
class LoginGuard {
 public:
  explicit LoginGuard(BearerToken token) : token_(std::move(token)) {}

  bool Admits(const HttpRequest& request) const {
    return token_.AdmitsLogin(request.authorization);
  }
  /// Returns a refusal that makes a browser ask for a login, or nullopt if the request may be
  /// answered.
  std::optional<HttpResponse> Refuse(const HttpRequest& request) const {
    if (Admits(request)) return std::nullopt;
    return HttpResponse{.status = 401,
                        .body =
                            "the token is missing or wrong: send 'Authorization: Bearer TOKEN', "
                            "or log in with any user name and the token as the password\n",
                        .headers = {{"WWW-Authenticate", "Basic realm=\"ptqwatch\""},
                                    {"Cache-Control", "no-store"}}};
  }

 private:
  const BearerToken token_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_LOGIN_GUARD_H_
