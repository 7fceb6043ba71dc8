#include "http/host_guard.h"

#include <arpa/inet.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

// "[::1]:80", "name:80" and both without a port, in lower case and without brackets.
std::string HostOf(const std::string& address) {
  if (!address.empty() && address.front() == '[') {
    const size_t end = address.find(']');
    return end == std::string::npos ? "" : absl::AsciiStrToLower(address.substr(1, end - 1));
  }
  return absl::AsciiStrToLower(address.substr(0, address.rfind(':')));
}

bool IsIpAddress(const std::string& host) {
  in6_addr parsed{};
  return inet_pton(AF_INET, host.c_str(), &parsed) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

}  // namespace

HostGuard::HostGuard(const std::string& listen_address,
                     const std::vector<std::string>& allowed_hosts)
    : hosts_{"localhost", HostOf(listen_address)} {
  for (const std::string& host : allowed_hosts) hosts_.insert(absl::AsciiStrToLower(host));
}

std::optional<HttpResponse> HostGuard::Refuse(const HttpRequest& request) const {
  const std::string host = HostOf(request.host);
  if (host.empty() || (hosts_.count(host) == 0 && !IsIpAddress(host))) {
    return HttpResponse{.status = 403,
                        .body = StrCat("host '", request.host,
                                       "' is not served; see ServeOptions::allowed_hosts or "
                                       "ptqwatch serve --allow-host\n")};
  }
  // A request sent by a page carries the origin of the page, which must be this server.
  if (!request.origin.empty() &&
      !absl::EqualsIgnoreCase(request.origin, "http://" + request.host) &&
      !absl::EqualsIgnoreCase(request.origin, "https://" + request.host)) {
    return HttpResponse{.status = 403,
                        .body = StrCat("origin '", request.origin, "' is another site\n")};
  }
  return std::nullopt;
}

}  // namespace ptqwatch::internal
