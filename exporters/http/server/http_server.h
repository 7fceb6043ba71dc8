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

/// An HTTP/1.1 server on one thread. Uses Boost.Beast and Asio, which no header outside this folder
/// exposes. Connections are kept alive. A request has at most 64 KiB of headers and 64 KiB of body.
/// At most 64 connections are open beside streams (or an eighth of RLIMIT_NOFILE, if less); a new
/// one replaces the one with the least recent request.
class HttpServer {
 public:
  struct Options {
    ListenOptions listen;
    /// Already accepted by CheckSecurity. The token is checked by the handler, not here.
    ServerSecurity security = {};
    /// How long a client may take to send a request, which includes the handshake or the idle time
    /// before it, and again to read the answer. Then its connection is closed.
    std::chrono::milliseconds patience{20'000};
    /// How long a replacement of the files of `security` may go unnoticed.
    std::chrono::milliseconds certificate_interval{10'000};
  };

  /// Binds and serves at once. `handler` is called on the server's thread and must not block.
  /// Returns the errors of BindListenAddress, InvalidArgument for files that OpenSSL does not
  /// accept, and ResourceExhausted if the thread cannot be started.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const Options& options,
                                                           HttpHandler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// The host from the options with the port in use.
  const std::string& address() const;
  /// Makes all streams send newly published data. Callable from any thread; returns at once.
  void Wake();
  /// Closes all connections and joins the thread after the running handler returns. Idempotent.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_SERVER_HTTP_SERVER_H_
