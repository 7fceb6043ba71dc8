#ifndef PTQWATCH_PROMETHEUS_CHANNEL_H_
#define PTQWATCH_PROMETHEUS_CHANNEL_H_

#include <cstddef>
#include <optional>

#include "tls_context.h"

namespace ptqwatch::internal {

/// A connected, non-blocking socket, plain or with TLS. No call waits, none raises SIGPIPE. One
/// thread at a time.
class Channel {
 public:
  /// What a call has done.
  struct Moved {
    size_t bytes = 0;  ///< above 0: done
    short wait = 0;    ///< otherwise what to poll for before the same call again; 0: never again
  };

  /// Takes the socket over. `session`: of a server; null for none.
  explicit Channel(int socket, TlsSession session = nullptr);
  /// Says goodbye as TLS asks for, and closes the socket.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int socket() const { return socket_; }
  bool has_tls() const { return session_ != nullptr; }
  /// Whether a client that has said something speaks TLS; nullopt where it has ended the
  /// connection. Takes nothing out of it.
  std::optional<bool> PeerHasTls() const;
  /// From now on bytes are sent as they are. REQUIRES: before the handshake.
  void DropTls() { session_.reset(); }

  /// REQUIRES: has_tls(). Until it is done nothing can be received or sent.
  Moved Handshake();
  /// `bytes` = 0 and `wait` = 0 at the end, too.
  Moved Receive(char* out, size_t size);
  /// Sends a part. What is tried again after waiting must begin with the same bytes.
  Moved Send(const char* bytes, size_t size);

 private:
  Moved FromTls(int result, size_t bytes);

  const int socket_;
  TlsSession session_;
  bool broken_ = false;  // the session: it must not be used any more
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROMETHEUS_CHANNEL_H_
