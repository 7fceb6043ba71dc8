#ifndef PTQWATCH_PROMETHEUS_HTTP_CONNECTION_H_
#define PTQWATCH_PROMETHEUS_HTTP_CONNECTION_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "httplib.h"

namespace ptqwatch::internal {

/// A connection as httplib reads and writes it: one request within 5 s and 64 KiB, no line of it
/// longer than 1 KiB, one response within 10 s. httplib's own stream has no limit on a whole
/// request (a byte every few seconds keeps it open), raises SIGPIPE, and refuses descriptors above
/// 1023. One thread at a time.
class HttpConnection final : public httplib::Stream {
 public:
  /// The socket stays the caller's.
  explicit HttpConnection(int socket);

  /// Nothing is sent any more; what is written counts as sent.
  void Mute() { muted_ = true; }

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* out, size_t size) override;
  ssize_t write(const char* bytes, size_t size) override;
  // No handler looks at addresses.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  // httplib only compares it with FD_SETSIZE, for a select() that is not used here.
  socket_t socket() const override { return INVALID_SOCKET; }

 private:
  bool Wait(short events, std::chrono::steady_clock::time_point until) const;

  const int socket_;
  const std::chrono::steady_clock::time_point read_until_;
  std::optional<std::chrono::steady_clock::time_point> write_until_;
  char buffer_[4096];
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t total_ = 0;
  size_t line_ = 0;  // bytes of it so far
  bool muted_ = false;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROMETHEUS_HTTP_CONNECTION_H_
