#include "base/net_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

constexpr int kMaxPort = 65535;
constexpr size_t kMaxHostNameBytes = 253;

std::string ErrnoText(int error) { return std::generic_category().message(error); }

bool IsNumber(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
}

// Accepts digits only: absl::SimpleAtoi would also take signs and spaces.
std::optional<int> ParsePort(std::string_view text, int min_port) {
  int port = 0;
  if (!IsNumber(text) || !absl::SimpleAtoi(std::string(text), &port)) return std::nullopt;
  if (port < min_port || port > kMaxPort) return std::nullopt;
  return port;
}

bool IsHostName(std::string_view host) {
  return !host.empty() && host.size() <= kMaxHostNameBytes && host.front() != '-' &&
         host.front() != '.' && std::all_of(host.begin(), host.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' ||
                  c == '_';
         });
}

bool IsIpv6(std::string_view host) {
  in6_addr parsed;
  return inet_pton(AF_INET6, std::string(host).c_str(), &parsed) == 1;
}

bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

std::string NumericHost(const addrinfo& entry) {
  char host[NI_MAXHOST] = "";
  getnameinfo(entry.ai_addr, entry.ai_addrlen, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return entry.ai_family == AF_INET6 ? StrCat("[", host, "]") : host;
}

int BoundPort(int socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  const in_port_t port = bound.ss_family == AF_INET6
                             ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                             : reinterpret_cast<const sockaddr_in&>(bound).sin_port;
  return ntohs(port);
}

// The error message is only the system's text.
absl::StatusOr<BoundSocket> Bind(const addrinfo& entry) {
  const int socket = ::socket(entry.ai_family, entry.ai_socktype | SOCK_CLOEXEC, entry.ai_protocol);
  if (socket < 0) return absl::UnavailableError(ErrnoText(errno));
  BoundSocket owner(socket, NumericHost(entry), 0);
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(socket, entry.ai_addr, entry.ai_addrlen) != 0) {
    return absl::UnavailableError(ErrnoText(errno));
  }
  return BoundSocket(owner.Release(), owner.numeric_host(), BoundPort(socket));
}

}  // namespace

std::string HostPort::ToString() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? StrCat("[", host, "]:", port) : StrCat(host, ":", port);
}

absl::StatusOr<HostPort> ParseListenAddress(std::string_view kind, std::string_view address) {
  const auto error = [&](std::string_view what) {
    return absl::InvalidArgumentError(StrCat(kind, " address '", address, "': ", what));
  };
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return error("must be HOST:PORT or [IPV6]:PORT");
  std::string_view host = address.substr(0, colon);
  if (!host.empty() && host.front() == '[') {
    if (host.back() != ']') return error("'[' without ']' before the port");
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return error("an IPv6 host must be in brackets, as in [::1]:PORT");
  }
  if (host.empty()) return error("the host is missing; use 127.0.0.1 for this machine");
  if (host.find('\0') != std::string_view::npos) return error("the host contains a NUL");
  const std::optional<int> port = ParsePort(address.substr(colon + 1), /*min_port=*/0);
  if (!port) return error("the port must be a number from 0 to 65535");
  return HostPort{std::string(host), *port};
}

absl::StatusOr<HostPort> ParseServerAddress(std::string_view text, int default_port) {
  const auto error = [&](std::string_view what) {
    return absl::InvalidArgumentError(StrCat(Quoted(text), " ", what));
  };
  constexpr std::string_view kNoForm = "is not HOST:PORT, :PORT or [IPV6]:PORT";
  const bool bracketed = !text.empty() && text.front() == '[';
  const size_t close = bracketed ? text.find(']') : std::string_view::npos;
  if (bracketed && close == std::string_view::npos) return error(kNoForm);
  const size_t colon = bracketed ? close + 1 : text.find(':');
  if (!bracketed && colon != text.rfind(':') && IsIpv6(text)) {
    return error(StrCat("is ambiguous: write [", text, "]:PORT"));
  }
  if (IsNumber(text)) {
    return error(StrCat("is not a host: for a port of this machine write :", text));
  }
  std::string_view host = bracketed ? text.substr(1, close - 1) : text.substr(0, colon);
  if (!bracketed && host.empty() && colon == 0) host = "127.0.0.1";
  if (bracketed ? !IsIpv6(host) : !IsHostName(host)) return error(kNoForm);
  const std::string_view rest = colon < text.size() ? text.substr(colon) : std::string_view();
  if (rest.empty()) return HostPort{std::string(host), default_port};
  if (rest.front() != ':' || rest.rfind(':') != 0) return error(kNoForm);
  const std::optional<int> port = ParsePort(rest.substr(1), /*min_port=*/1);
  if (!port) return error("has no port from 1 to 65535 after its colon");
  return HostPort{std::string(host), *port};
}

BoundSocket::BoundSocket(int descriptor, std::string numeric_host, int port)
    : descriptor_(descriptor), numeric_host_(std::move(numeric_host)), port_(port) {}

BoundSocket::BoundSocket(BoundSocket&& other) noexcept
    : descriptor_(other.Release()),
      numeric_host_(std::move(other.numeric_host_)),
      port_(other.port_) {}

BoundSocket::~BoundSocket() {
  if (descriptor_ >= 0) close(descriptor_);
}

int BoundSocket::Release() { return std::exchange(descriptor_, -1); }

absl::StatusOr<BoundSocket> BindListenAddress(const ListenOptions& options) {
  PTQWATCH_ASSIGN_OR_RETURN(const HostPort target,
                            ParseListenAddress(options.kind, options.address));
  const std::string address = StrCat(options.kind, " address '", options.address, "'");
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int resolved =
      getaddrinfo(target.host.c_str(), std::to_string(target.port).c_str(), &hints, &found);
  if (resolved != 0) {
    const std::string reason = resolved == EAI_SYSTEM ? ErrnoText(errno) : gai_strerror(resolved);
    return absl::UnavailableError(
        StrCat(address, ": cannot resolve '", target.host, "': ", reason));
  }
  absl::Cleanup free_found = [found] { freeaddrinfo(found); };

  absl::Status failed = absl::InvalidArgumentError(
      StrCat(address, ": is not a loopback address; other machines are served only with ",
             options.allow_remote_option, ", which is false"));
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    if (!options.allow_remote && !IsLoopback(*entry->ai_addr)) continue;
    absl::StatusOr<BoundSocket> bound = Bind(*entry);
    if (bound.ok()) return bound;
    failed = absl::UnavailableError(StrCat(address, ": cannot bind: ", bound.status()));
  }
  return failed;
}

}  // namespace ptqwatch::internal
