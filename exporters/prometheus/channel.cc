#include "channel.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "openssl/bio.h"
#include "openssl/err.h"

namespace ptqwatch::internal {
namespace {

constexpr char kTlsHandshakeRecord = 0x16;  // the first byte of every TLS connection

bool IsTransient(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

int SocketOf(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

int ReadSocket(BIO* bio, char* out, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = recv(SocketOf(bio), out, static_cast<size_t>(size), MSG_DONTWAIT);
  if (got < 0 && IsTransient(errno)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

int WriteSocket(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent =
      send(SocketOf(bio), bytes, static_cast<size_t>(size), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && IsTransient(errno)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

long ControlSocket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

// OpenSSL's own way to write to a socket raises SIGPIPE.
BIO_METHOD* SocketMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "ptqwatch socket");
    if (made == nullptr) return made;
    BIO_meth_set_read(made, ReadSocket);
    BIO_meth_set_write(made, WriteSocket);
    BIO_meth_set_ctrl(made, ControlSocket);
    return made;
  }();
  return method;
}

}  // namespace

Channel::Channel(int socket, TlsSession session) : socket_(socket), session_(std::move(session)) {
  if (session_ == nullptr) return;
  BIO* const bio = SocketMethod() == nullptr ? nullptr : BIO_new(SocketMethod());
  if (bio == nullptr) {
    broken_ = true;
    return;
  }
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket_)));
  BIO_set_init(bio, 1);
  SSL_set_bio(session_.get(), bio, bio);
  SSL_set_accept_state(session_.get());
}

Channel::~Channel() {
  if (has_tls() && !broken_ && SSL_is_init_finished(session_.get())) {
    ERR_clear_error();
    SSL_shutdown(session_.get());
    ERR_clear_error();
  }
  close(socket_);
}

std::optional<bool> Channel::PeerHasTls() const {
  char first = 0;
  if (recv(socket_, &first, 1, MSG_PEEK | MSG_DONTWAIT) != 1) return std::nullopt;
  return first == kTlsHandshakeRecord;
}

Channel::Moved Channel::FromTls(int result, size_t bytes) {
  if (result > 0) return {.bytes = bytes};
  const int error = SSL_get_error(session_.get(), result);
  ERR_clear_error();
  if (error == SSL_ERROR_WANT_READ) return {.wait = POLLIN};
  if (error == SSL_ERROR_WANT_WRITE) return {.wait = POLLOUT};
  broken_ = error != SSL_ERROR_ZERO_RETURN;
  return {};
}

Channel::Moved Channel::Handshake() {
  if (broken_) return {};
  ERR_clear_error();
  return FromTls(SSL_do_handshake(session_.get()), 1);
}

Channel::Moved Channel::Receive(char* out, size_t size) {
  if (has_tls()) {
    if (broken_) return {};
    size_t got = 0;
    ERR_clear_error();
    const int result = SSL_read_ex(session_.get(), out, size, &got);
    return FromTls(result, got);
  }
  const ssize_t got = recv(socket_, out, size, MSG_DONTWAIT);
  if (got > 0) return {.bytes = static_cast<size_t>(got)};
  return {.wait = static_cast<short>(got < 0 && IsTransient(errno) ? POLLIN : 0)};
}

Channel::Moved Channel::Send(const char* bytes, size_t size) {
  if (has_tls()) {
    if (broken_) return {};
    size_t sent = 0;
    ERR_clear_error();
    const int result = SSL_write_ex(session_.get(), bytes, size, &sent);
    return FromTls(result, sent);
  }
  const ssize_t sent = send(socket_, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) return {.bytes = static_cast<size_t>(sent)};
  return {.wait = static_cast<short>(sent < 0 && IsTransient(errno) ? POLLOUT : 0)};
}

}  // namespace ptqwatch::internal
