#ifndef PTQWATCH_HTTP_SERVER_HTTP_SERVER_H_
#define PTQWATCH_HTTP_SERVER_HTTP_SERVER_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/net_address.h"
#include "http/http_message.h"
#include "ptqwatch/server_security.h"

namespace ptqwatch::internal {

/// An HTTP/1.1 server on one thread, by Boost.Beast and Asio, which no header outside this folder
/// shows. Connections are kept alive. Requests have at most 64 KiB of headers and of body; with 64
/// connections open beside streams (an eighth of RLIMIT_NOFILE if that is less), the one that has
/// been without a request for longest makes room for the next.
class HttpServer {
 public:
  struct Options {
    ListenOptions listen;
    /// CheckSecurity has found nothing against it. The token is the handler's.
    ServerSecurity security = {};
    /// For a client to send a request, with the handshake before it or the silence since the last
    /// one, and again to take what is sent. Then its connection is closed.
    std::chrono::milliseconds patience{20'000};
    /// How long replaced files of `security` may remain unnoticed.
    std::chrono::milliseconds certificate_interval{10'000};
  };

  /// Binds and serves at once. `handler` is called on the server's thread and must not block.
  /// Errors are those of BindListenAddress, InvalidArgument for files that OpenSSL does not accept,
  /// and ResourceExhausted if no thread can be started.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const Options& options,
                                                           HttpHandler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// The host as it was given and the port that was taken.
  const std::string& address() const;
  /// Asks all streams for what is new. Any thread; returns at once.
  void Wake();
  /// Closes all connections and joins the thread, once the handler that runs returns. Idempotent.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_SERVER_HTTP_SERVER_H_
