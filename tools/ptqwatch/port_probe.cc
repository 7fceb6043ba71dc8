#include "port_probe.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

namespace ptqwatch::internal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kRequest = "GET /healthz HTTP/1.0\r\nHost: ptqwatch\r\n\r\n";
constexpr std::string_view kHttp1 = "HTTP/1.";

class Socket {
 public:
  explicit Socket(const addrinfo& address)
      : fd_(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

  bool Wait(short events, Clock::time_point end) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    pollfd ready{.fd = fd_, .events = events, .revents = 0};
    return left.count() > 0 && poll(&ready, 1, static_cast<int>(left.count())) == 1;
  }

 private:
  const int fd_;
};

// The first bytes that come back.
std::string Answer(const addrinfo& address, Clock::time_point end) {
  const Socket socket(address);
  if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0 &&
      (errno != EINPROGRESS || !socket.Wait(POLLOUT, end))) {
    return "";
  }
  if (send(socket.fd(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(kRequest.size())) {
    return "";
  }
  std::string answer;
  while (answer.size() < kHttp1.size() && socket.Wait(POLLIN, end)) {
    char buffer[64];
    const ssize_t got = recv(socket.fd(), buffer, sizeof(buffer), 0);
    if (got <= 0) break;
    answer.append(buffer, static_cast<size_t>(got));
  }
  return answer;
}

}  // namespace

bool SpeaksHttp1(const ServerAddress& address, std::chrono::milliseconds limit) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found) !=
      0) {
    return false;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  const Clock::time_point end = Clock::now() + limit;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    if (std::string_view(Answer(*one, end)).starts_with(kHttp1)) return true;
  }
  return false;
}

}  // namespace ptqwatch::internal
