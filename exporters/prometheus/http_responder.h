#ifndef PTQWATCH_PROMETHEUS_HTTP_RESPONDER_H_
#define PTQWATCH_PROMETHEUS_HTTP_RESPONDER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "channel.h"
#include "http_message.h"

namespace ptqwatch::internal {

/// Reads one request from a connection and answers it; a request within 5 s and 64 KiB, a response
/// within 10 s. A client without TLS where there is TLS, and the other way round, gets 400 in plain
/// HTTP. cpp-httplib parses and writes HTTP. Thread-safe.
class HttpResponder {
 public:
  /// Answers GET and HEAD on one path. Called from several threads at once; must not block.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  explicit HttpResponder(std::map<std::string, Handler> routes);
  ~HttpResponder();
  HttpResponder(const HttpResponder&) = delete;
  HttpResponder& operator=(const HttpResponder&) = delete;

  /// Never throws. Where the handler takes the channel over, `channel` is null afterwards;
  /// `before_take_over` was called before.
  void Serve(std::unique_ptr<Channel>& channel,
             const std::function<void()>& before_take_over = nullptr) noexcept;

 private:
  class Engine;
  const std::map<std::string, Handler> routes_;
  const std::unique_ptr<Engine> engine_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROMETHEUS_HTTP_RESPONDER_H_
