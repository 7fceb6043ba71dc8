#ifndef PTQWATCH_PROMETHEUS_HTTP_CONNECTION_H_
#define PTQWATCH_PROMETHEUS_HTTP_CONNECTION_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "channel.h"
#include "httplib.h"
#include "request_filter.h"

namespace ptqwatch::internal {

/// A connection as httplib reads and writes it: one request within 5 s, with the handshake of TLS,
/// and 64 KiB, of which RequestFilter passes a part; one response within 10 s. httplib's own stream
/// has no limit on a whole request (a byte every few seconds keeps it open), raises SIGPIPE, and
/// refuses descriptors above 1023. One thread at a time.
class HttpConnection final : public httplib::Stream {
 public:
  /// The channel stays the caller's.
  explicit HttpConnection(Channel* channel);

  /// Waits for the client's first byte, and for the handshake where there is TLS. False where there
  /// is no request to read: nothing comes, the handshake fails, or one side speaks TLS and the
  /// other does not. Such a client has been told, and everything that is left is to close.
  bool Open();
  /// After the answer to a client that may still be sending: reads what comes, within limits.
  /// Closing a socket with something unread resets the connection, and the client may then never
  /// see what it was told.
  void Linger();
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
  using Time = std::chrono::steady_clock::time_point;

  bool Wait(short events, Time until) const;
  // Calls until bytes have moved; nullopt where it is too late, 0 at the end of the connection.
  std::optional<size_t> Move(const std::function<Channel::Moved()>& call, Time until) const;
  void RefuseOtherProtocol();

  Channel* const channel_;
  const Time read_until_;
  std::optional<Time> write_until_;
  RequestFilter filter_;
  std::string passed_;  // by the filter
  size_t begin_ = 0;    // of `passed_`, what is not read yet
  size_t total_ = 0;
  bool muted_ = false;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROMETHEUS_HTTP_CONNECTION_H_
