#ifndef PTQWATCH_HTTP_HOST_GUARD_H_
#define PTQWATCH_HTTP_HOST_GUARD_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "http/http_message.h"

namespace ptqwatch::internal {

/// Keeps pages of other sites from reading ours in a visitor's browser. A name of theirs may
/// resolve to our address (DNS rebinding), so requests are answered for hosts that cannot be
/// theirs: "localhost", literal IP addresses, the host that is listened on, and those that the
/// options allow. Thread-safe.
class HostGuard {
 public:
  /// `listen_address` is HOST:PORT; `allowed_hosts` are names without a port.
  HostGuard(const std::string& listen_address, const std::vector<std::string>& allowed_hosts);

  /// The refusal, or nullopt for a request that may be answered.
  std::optional<HttpResponse> Refuse(const HttpRequest& request) const;

 private:
  std::set<std::string> hosts_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_HOST_GUARD_H_
