#ifndef PTQWATCH_PROMETHEUS_HTTP_SERVER_H_
#define PTQWATCH_PROMETHEUS_HTTP_SERVER_H_

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ptqwatch::internal {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

/// A small HTTP server that may live in somebody else's process: five threads, at most 20
/// connections at a time, one request a connection, a request within 5 s and 64 KiB, signal
/// dispositions left as they were, all signals blocked on its threads. Parsing and writing HTTP is
/// cpp-httplib's work.
///
/// Not prometheus::Exposer: its civetweb asks for thread stacks of 100 KiB, out of which glibc also
/// takes the static thread-local storage, so in a process with LibTorch no thread starts and the
/// constructor throws "null context when constructing CivetServer. Possible problem binding to
/// port."; it also leaves SIGPIPE ignored in the whole process.
class HttpServer {
 public:
  /// Answers GET and HEAD on one path. Called from several threads at once; must not wait for
  /// anything.
  using Handler = std::function<HttpResponse()>;

  /// Binds and serves at once. InvalidArgument or, with the reason, Unavailable; both name the
  /// address.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           std::map<std::string, Handler> routes);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// With the port that was taken.
  const std::string& address() const;
  /// Cuts all connections and joins the threads: takes as long as the handlers that are running.
  /// Idempotent.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROMETHEUS_HTTP_SERVER_H_
