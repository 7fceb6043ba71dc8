#ifndef PTQWATCH_PROMETHEUS_HTTP_RESPONDER_H_
#define PTQWATCH_PROMETHEUS_HTTP_RESPONDER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace ptqwatch::internal {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

/// Reads one request from a connection and answers it; a request within 5 s and 64 KiB, a response
/// within 10 s. cpp-httplib parses and writes HTTP. Thread-safe.
class HttpResponder {
 public:
  /// Answers GET and HEAD on one path. Called from several threads at once; must not block.
  using Handler = std::function<HttpResponse()>;

  explicit HttpResponder(std::map<std::string, Handler> routes);
  ~HttpResponder();
  HttpResponder(const HttpResponder&) = delete;
  HttpResponder& operator=(const HttpResponder&) = delete;

  /// Never throws. `socket` is connected, and stays the caller's.
  void Serve(int socket) noexcept;

 private:
  class Engine;
  const std::map<std::string, Handler> routes_;
  const std::unique_ptr<Engine> engine_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROMETHEUS_HTTP_RESPONDER_H_
