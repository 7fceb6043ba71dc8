#ifndef PTQWATCH_PROMETHEUS_HTTP_SERVER_H_
#define PTQWATCH_PROMETHEUS_HTTP_SERVER_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/net_address.h"
#include "http_responder.h"
#include "tls_context.h"

namespace ptqwatch::internal {

/// A small HTTP server for use inside a trainer's process: six threads, four of which serve; at
/// most 68 connections with a request and 64 silent ones at a time; one request per connection,
/// within 5 s of silence, another 5 s and 64 KiB. Signal dispositions stay as they are, and its
/// threads block all signals. A handshake of TLS is a worker's, and counts as part of the request.
/// cpp-httplib parses and writes HTTP.
///
/// prometheus::Exposer cannot be used. Its civetweb asks for thread stacks of 100 KiB, from which
/// glibc also takes static thread-local storage, so no thread starts in a process with LibTorch:
/// the constructor throws "null context when constructing CivetServer. Possible problem binding to
/// port.". It also leaves SIGPIPE ignored in the whole process.
class HttpServer {
 public:
  using Handler = HttpResponder::Handler;

  /// Binds and serves at once, with TLS where `tls` is not null. Errors are those of
  /// BindListenAddress, and ResourceExhausted where a thread cannot be started.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const ListenOptions& options, std::map<std::string, Handler> routes,
      std::unique_ptr<TlsContext> tls = nullptr);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// The host as it was given and the port that was taken.
  const std::string& address() const;
  /// Closes all connections and joins the threads, once the handlers that are running return.
  /// Idempotent.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROMETHEUS_HTTP_SERVER_H_
