#include "http_connection.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kRequestTimeout = std::chrono::seconds(5);
constexpr auto kResponseTimeout = std::chrono::seconds(10);  // Prometheus gives up a scrape then
constexpr size_t kMaxRequestBytes = size_t{64} << 10;
constexpr auto kLinger = milliseconds(500);
constexpr size_t kReadBytes = 4096;

std::string Refusal(std::string_view text) {
  return StrCat("HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: ", text.size(),
                "\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n", text);
}

}  // namespace

HttpConnection::HttpConnection(Channel* channel)
    : channel_(channel), read_until_(steady_clock::now() + kRequestTimeout) {}

bool HttpConnection::Open() {
  if (!Wait(POLLIN, read_until_)) return false;
  const std::optional<bool> peer_has_tls = channel_->PeerHasTls();
  if (!peer_has_tls) return false;
  if (*peer_has_tls != channel_->has_tls()) {
    RefuseOtherProtocol();
    return false;
  }
  if (!channel_->has_tls()) return true;
  const auto done = Move([this] { return channel_->Handshake(); }, read_until_);
  if (done.value_or(0) > 0) return true;
  // OpenSSL has sent an alert that says why.
  if (done) Linger();
  return false;
}

// Clients of both kinds know how to name an HTTP response that they did not expect.
void HttpConnection::RefuseOtherProtocol() {
  const std::string refusal =
      Refusal(channel_->has_tls() ? "this server speaks TLS: ask by https://\n"
                                  : "this server speaks no TLS: ask by http://\n");
  channel_->DropTls();
  write(refusal.data(), refusal.size());
  Linger();
}

void HttpConnection::Linger() {
  shutdown(channel_->socket(), SHUT_WR);
  const Time until = std::min(read_until_, steady_clock::now() + kLinger);
  char ignored[kReadBytes];
  size_t total = 0;
  while (total < kMaxRequestBytes && Wait(POLLIN, until)) {
    const ssize_t got = recv(channel_->socket(), ignored, sizeof(ignored), MSG_DONTWAIT);
    if (got <= 0) return;
    total += static_cast<size_t>(got);
  }
}

bool HttpConnection::is_readable() const {
  return begin_ < passed_.size() || Wait(POLLIN, read_until_);
}

bool HttpConnection::is_writable() const {
  return Wait(POLLOUT, steady_clock::now() + kResponseTimeout);
}

ssize_t HttpConnection::read(char* out, size_t size) {
  while (begin_ == passed_.size()) {
    passed_.clear();
    begin_ = 0;
    if (total_ >= kMaxRequestBytes) return -1;
    char bytes[kReadBytes];
    const auto got = Move([&] { return channel_->Receive(bytes, sizeof(bytes)); }, read_until_);
    if (!got) return -1;
    if (*got == 0) return 0;
    total_ += *got;
    if (!filter_.Pass({bytes, *got}, passed_)) {
      passed_.clear();
      total_ = kMaxRequestBytes;
      return -1;
    }
  }
  const size_t count = std::min(size, passed_.size() - begin_);
  std::memcpy(out, passed_.data() + begin_, count);
  begin_ += count;
  return static_cast<ssize_t>(count);
}

ssize_t HttpConnection::write(const char* bytes, size_t size) {
  if (muted_) return static_cast<ssize_t>(size);
  // One deadline for the whole response, starting with its first byte.
  if (!write_until_) write_until_ = steady_clock::now() + kResponseTimeout;
  const auto sent = Move([&] { return channel_->Send(bytes, size); }, *write_until_);
  return sent.value_or(0) == 0 ? -1 : static_cast<ssize_t>(*sent);
}

std::optional<size_t> HttpConnection::Move(const std::function<Channel::Moved()>& call,
                                           Time until) const {
  while (true) {
    const Channel::Moved moved = call();
    if (moved.bytes > 0 || moved.wait == 0) return moved.bytes;
    if (!Wait(moved.wait, until)) return std::nullopt;
  }
}

bool HttpConnection::Wait(short events, Time until) const {
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd waiting{channel_->socket(), events, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(left));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace ptqwatch::internal
