#ifndef PTQWATCH_TESTS_SUPPORT_RAW_CLIENT_H_
#define PTQWATCH_TESTS_SUPPORT_RAW_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace ptqwatch::testing {

inline int PortOf(const std::string& address) {
  return atoi(address.substr(address.rfind(':') + 1).c_str());
}

/// A connection to a port of 127.0.0.1 that sends exactly the given bytes.
class RawClient {
 public:
  explicit RawClient(const std::string& address) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in target{};
    target.sin_family = AF_INET;
    target.sin_port = htons(static_cast<in_port_t>(PortOf(address)));
    target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&target), sizeof(target)) == 0;
    const timeval limit{20, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    const timeval send_limit{1, 0};
    setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &send_limit, sizeof(send_limit));
  }
  ~RawClient() { close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  void Send(const std::string& bytes) {
    EXPECT_EQ(send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  /// Returns false if the other side has ended the connection, or takes nothing for a second.
  bool TrySend(const std::string& bytes) {
    return send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  /// Reads until the other side closes or resets the connection.
  std::string ReadAll() {
    std::string all;
    char buffer[4096];
    while (true) {
      const ssize_t got = recv(socket_, buffer, sizeof(buffer), 0);
      if (got <= 0) break;
      all.append(buffer, static_cast<size_t>(got));
    }
    return all;
  }
  /// Waits for data and returns what has arrived; empty at the end of the connection.
  std::string ReadSome() {
    char buffer[65536];
    const ssize_t got = recv(socket_, buffer, sizeof(buffer), 0);
    return got <= 0 ? std::string() : std::string(buffer, static_cast<size_t>(got));
  }
  /// Waits for data. Returns false if the connection ends instead.
  bool Peek() {
    char first = 0;
    return recv(socket_, &first, 1, MSG_PEEK) == 1;
  }
  /// Closes the sending side.
  void EndSending() { shutdown(socket_, SHUT_WR); }
  /// Makes closing the socket reset the connection and drop data in flight.
  void ResetWhenClosed() {
    const linger now{1, 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }

 private:
  int socket_;
  bool connected_ = false;
};

inline std::string Get(const std::string& address, const std::string& path) {
  RawClient client(address);
  client.Send("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  return client.ReadAll();
}

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_RAW_CLIENT_H_
