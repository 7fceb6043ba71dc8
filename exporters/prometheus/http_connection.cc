#include "http_connection.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kRequestTimeout = std::chrono::seconds(5);
constexpr auto kResponseTimeout = std::chrono::seconds(10);  // Prometheus gives up a scrape then
constexpr size_t kMaxRequestBytes = size_t{64} << 10;
// httplib matches header values and the request line against regular expressions, and the matcher
// of the standard library recurses: about 330 bytes of stack a character.
constexpr size_t kMaxLineBytes = size_t{1} << 10;

}  // namespace

HttpConnection::HttpConnection(int socket)
    : socket_(socket), read_until_(steady_clock::now() + kRequestTimeout) {}

bool HttpConnection::is_readable() const { return begin_ < end_ || Wait(POLLIN, read_until_); }

bool HttpConnection::is_writable() const {
  return Wait(POLLOUT, steady_clock::now() + kResponseTimeout);
}

ssize_t HttpConnection::read(char* out, size_t size) {
  if (begin_ == end_) {
    if (total_ >= kMaxRequestBytes || !Wait(POLLIN, read_until_)) return -1;
    const ssize_t got = recv(socket_, buffer_, sizeof(buffer_), MSG_DONTWAIT);
    if (got <= 0) return got;
    begin_ = 0;
    end_ = static_cast<size_t>(got);
    total_ += end_;
    for (size_t i = 0; i < end_; ++i) {
      line_ = buffer_[i] == '\n' ? 0 : line_ + 1;
      if (line_ <= kMaxLineBytes) continue;
      end_ = 0;
      total_ = kMaxRequestBytes;
      return -1;
    }
  }
  const size_t count = std::min(size, end_ - begin_);
  std::memcpy(out, buffer_ + begin_, count);
  begin_ += count;
  return static_cast<ssize_t>(count);
}

ssize_t HttpConnection::write(const char* bytes, size_t size) {
  if (muted_) return static_cast<ssize_t>(size);
  // One deadline for the whole response, starting with its first byte.
  if (!write_until_) write_until_ = steady_clock::now() + kResponseTimeout;
  while (Wait(POLLOUT, *write_until_)) {
    const ssize_t sent = send(socket_, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return sent;
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return -1;
  }
  return -1;
}

bool HttpConnection::Wait(short events, steady_clock::time_point until) const {
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd waiting{socket_, events, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(left));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace ptqwatch::internal
