#ifndef PTQWATCH_HTTP_HOST_GUARD_H_
#define PTQWATCH_HTTP_HOST_GUARD_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "http/http_message.h"

namespace ptqwatch::internal {

/// Keeps pages of other sites from reading this server through a visitor's browser. Another site's
/// name may resolve to our address (DNS rebinding), so only hosts that cannot belong to another
/// site are answered: "localhost", literal IP addresses, the listen host and the hosts that the
/// options allow. Thread-safe.
class HostGuard {
 public:
  /// `listen_address` is HOST:PORT; `allowed_hosts` are names without a port.
  HostGuard(const std::string& listen_address, const std::vector<std::string>& allowed_hosts);

  /// Returns the refusal, or nullopt if the request may be answered.
  std::optional<HttpResponse> Refuse(const HttpRequest& request) const;

 private:
  std::set<std::string> hosts_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_HOST_GUARD_H_
