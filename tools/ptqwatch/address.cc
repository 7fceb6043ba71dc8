#include "address.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "base/strings.h"
#include "printable.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kForms = "HOST:PORT, :PORT or [IPV6]:PORT";

absl::Status Bad(std::string_view text, std::string_view what) {
  return absl::InvalidArgumentError(StrCat("'", Printable(text), "' ", what));
}

bool IsHostName(std::string_view host) {
  return !host.empty() && host.size() <= 253 && host.front() != '-' && host.front() != '.' &&
         std::all_of(host.begin(), host.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' ||
                  c == '_';
         });
}

bool IsIpv6(const std::string& host) {
  in6_addr parsed;
  return inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

bool IsNumber(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
}

absl::StatusOr<ServerAddress> WithPort(std::string_view text, ServerAddress address,
                                       std::string_view port) {
  // SimpleAtoi would take signs and spaces.
  if (!IsNumber(port) || !absl::SimpleAtoi(std::string(port), &address.port) || address.port < 1 ||
      address.port > 65535) {
    return Bad(text, StrCat("has no port from 1 to 65535 after its colon"));
  }
  return address;
}

}  // namespace

std::string ServerAddress::ToString() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? StrCat("[", host, "]:", port) : StrCat(host, ":", port);
}

absl::StatusOr<ServerAddress> ParseServerAddress(std::string_view text) {
  ServerAddress address;
  if (!text.empty() && text.front() == '[') {
    const size_t close = text.find(']');
    const std::string_view rest = close == std::string_view::npos ? "" : text.substr(close + 1);
    address.host = std::string(text.substr(1, close == std::string_view::npos ? close : close - 1));
    if (close == std::string_view::npos || !IsIpv6(address.host) ||
        (!rest.empty() && rest.front() != ':')) {
      return Bad(text, StrCat("is not ", kForms));
    }
    return rest.empty() ? address : WithPort(text, address, rest.substr(1));
  }
  const size_t colon = text.find(':');
  if (colon != text.rfind(':') && IsIpv6(std::string(text))) {
    return Bad(text, StrCat("is ambiguous: write [", text, "]:PORT"));
  }
  address.host = std::string(text.substr(0, colon));
  if (address.host.empty() && colon == 0) address.host = "127.0.0.1";
  if (IsNumber(text)) {
    return Bad(text, StrCat("is not a host: for a port of this machine write :", text));
  }
  if (!IsHostName(address.host) || colon != text.rfind(':')) {
    return Bad(text, StrCat("is not ", kForms));
  }
  return colon == std::string_view::npos ? address
                                         : WithPort(text, address, text.substr(colon + 1));
}

}  // namespace ptqwatch::internal
