#include "listen_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string_view>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "base/net_address.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

std::string ErrnoText(int error) { return std::generic_category().message(error); }

bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

std::string Numeric(const addrinfo& entry, int port) {
  char host[NI_MAXHOST] = "";
  getnameinfo(entry.ai_addr, entry.ai_addrlen, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return entry.ai_family == AF_INET6 ? StrCat("[", host, "]:", port) : StrCat(host, ":", port);
}

// 0 or errno. As gRPC binds: a trainer that restarts does not wait for the connections of its
// former self to time out, and two servers do not share a port.
int TryBinding(const addrinfo& entry) {
  const int socket = ::socket(entry.ai_family, entry.ai_socktype | SOCK_CLOEXEC, entry.ai_protocol);
  if (socket < 0) return errno;
  absl::Cleanup close_socket = [socket] { close(socket); };
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  return bind(socket, entry.ai_addr, entry.ai_addrlen) == 0 ? 0 : errno;
}

}  // namespace

absl::StatusOr<ListenAddress> FindListenAddress(const std::string& address, bool allow_remote) {
  const absl::StatusOr<HostPort> target = ParseHostPort("grpc", address);
  if (!target.ok()) return target.status();
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int resolved =
      getaddrinfo(target->host.c_str(), std::to_string(target->port).c_str(), &hints, &found);
  if (resolved != 0) {
    const std::string reason = resolved == EAI_SYSTEM ? ErrnoText(errno) : gai_strerror(resolved);
    return absl::UnavailableError(
        StrCat("grpc address '", address, "': cannot resolve '", target->host, "': ", reason));
  }
  absl::Cleanup free_found = [found] { freeaddrinfo(found); };

  std::string reason;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    if (!allow_remote && !IsLoopback(*entry->ai_addr)) continue;
    const int error = TryBinding(*entry);
    if (error == 0) {
      return ListenAddress{target->written_host, Numeric(*entry, target->port)};
    }
    reason = ErrnoText(error);
  }
  if (reason.empty()) {
    return absl::InvalidArgumentError(
        StrCat("grpc address '", address,
               "': is not a loopback address; there is no TLS, so other machines are served only "
               "with GrpcOptions::allow_remote"));
  }
  return absl::UnavailableError(StrCat("grpc address '", address, "': cannot bind: ", reason));
}

}  // namespace ptqwatch::internal
