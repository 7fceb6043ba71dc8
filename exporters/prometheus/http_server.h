#ifndef PTQWATCH_PROMETHEUS_HTTP_SERVER_H_
#define PTQWATCH_PROMETHEUS_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/net_address.h"

namespace ptqwatch::internal {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

/// A small HTTP server for use inside a trainer's process: five threads, at most 20 connections at
/// a time, one request per connection, a request within 5 s and 64 KiB. Signal dispositions stay as
/// they are, and its threads block all signals. cpp-httplib parses and writes HTTP.
///
/// prometheus::Exposer cannot be used. Its civetweb asks for thread stacks of 100 KiB, from which
/// glibc also takes static thread-local storage, so no thread starts in a process with LibTorch:
/// the constructor throws "null context when constructing CivetServer. Possible problem binding to
/// port.". It also leaves SIGPIPE ignored in the whole process.
class HttpServer {
 public:
  /// Answers GET and HEAD on one path. Called from several threads at once; must not block.
  using Handler = std::function<HttpResponse()>;

  /// Binds and serves at once. Errors are those of BindListenAddress, and ResourceExhausted where a
  /// thread cannot be started.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const ListenOptions& options,
                                                           std::map<std::string, Handler> routes);
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
