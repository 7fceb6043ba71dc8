#include "base/net_address.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "base/strings.h"

namespace ptqwatch::internal {

absl::StatusOr<HostPort> ParseHostPort(std::string_view kind, const std::string& address) {
  const auto error = [&](std::string_view what) {
    return absl::InvalidArgumentError(StrCat(kind, " address '", address, "': ", what));
  };
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return error("must be HOST:PORT or [IPV6]:PORT");
  HostPort result;
  result.written_host = result.host = address.substr(0, colon);
  if (!result.host.empty() && result.host.front() == '[') {
    if (result.host.back() != ']') return error("'[' without ']' before the port");
    result.host = result.host.substr(1, result.host.size() - 2);
  } else if (result.host.find(':') != std::string::npos) {
    return error("an IPv6 host must be in brackets, as in [::1]:PORT");
  }
  if (result.host.empty()) return error("the host is missing; 127.0.0.1 serves this machine");
  if (result.host.find('\0') != std::string::npos) return error("the host has a NUL in it");
  const std::string port = address.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(port, &result.port) || result.port > 65535) {
    return error("the port must be a number from 0 to 65535");
  }
  return result;
}

}  // namespace ptqwatch::internal
