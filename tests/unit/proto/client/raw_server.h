#ifndef PTQWATCH_TESTS_UNIT_PROTO_CLIENT_RAW_SERVER_H_
#define PTQWATCH_TESTS_UNIT_PROTO_CLIENT_RAW_SERVER_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>

#include "base/net_address.h"
#include "gtest/gtest.h"

namespace ptqwatch::testing {

/// Something on a port of 127.0.0.1 that is no gRPC server: answers the first bytes of each
/// connection with always the same, and closes it. With no answer it takes connections and is
/// silent.
class RawServer {
 public:
  explicit RawServer(std::string answer)
      : answer_(std::move(answer)), socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(where);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&where), size), 0);
    EXPECT_EQ(listen(socket_, 16), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&where), &size), 0);
    address_ = {"127.0.0.1", ntohs(where.sin_port)};
    if (!answer_.empty()) thread_ = std::thread([this] { Serve(); });
  }
  ~RawServer() {
    shutdown(socket_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    close(socket_);
  }
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;

  const internal::HostPort& address() const { return address_; }

 private:
  void Serve() {
    for (int client; (client = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      char buffer[4096];
      if (recv(client, buffer, sizeof(buffer), 0) > 0) {
        send(client, answer_.data(), answer_.size(), MSG_NOSIGNAL);
      }
      close(client);
    }
  }

  const std::string answer_;
  const int socket_;
  internal::HostPort address_;
  std::thread thread_;
};

inline constexpr char kHttpAnswer[] =
    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_UNIT_PROTO_CLIENT_RAW_SERVER_H_
