#include "http_responder.h"

#include <signal.h>

#include <utility>

#include "gzip.h"
#include "http_connection.h"
#include "httplib.h"

namespace ptqwatch::internal {

// httplib's constructor ignores SIGPIPE in the whole process. That is the trainer's decision, so
// the disposition is restored; our own writes never raise the signal.
class HttpResponder::Engine final : public httplib::Server {
 public:
  static std::unique_ptr<Engine> Make() {
    struct sigaction before {};
    sigaction(SIGPIPE, nullptr, &before);
    auto engine = std::make_unique<Engine>();
    sigaction(SIGPIPE, &before, nullptr);
    return engine;
  }
  using httplib::Server::process_request;
};

namespace {

constexpr size_t kMinCompressedBytes = 1024;

// What a request is answered with beside what httplib writes. A pointer of the thread's, because
// httplib hands nothing of ours on to the handler, which it calls on the same thread.
struct Exchange {
  HttpConnection* connection;
  bool accepts_gzip = false;
  bool may_have_body = true;  // that nobody reads
  std::function<void(std::unique_ptr<Channel>)> take_over = nullptr;
};
thread_local Exchange* exchange = nullptr;

HttpRequest RequestOf(const httplib::Request& request) {
  return {.path = request.path,
          .parameters = {request.params.begin(), request.params.end()},
          .host = request.get_header_value("Host"),
          .origin = request.get_header_value("Origin"),
          .authorization = request.get_header_value("Authorization"),
          .accept = request.get_header_value("Accept"),
          .if_none_match = request.get_header_value("If-None-Match"),
          .last_event_id = request.get_header_value("Last-Event-ID"),
          .accepts_gzip = exchange->accepts_gzip};
}

HttpResponse Answer(const std::map<std::string, HttpResponder::Handler>& routes,
                    const httplib::Request& request) {
  const auto route = routes.find(request.path);
  if (route == routes.end()) return {.status = 404, .body = "not found\n"};
  if (request.method != "GET" && request.method != "HEAD") {
    return {.status = 405, .body = "method not allowed\n", .headers = {{"Allow", "GET, HEAD"}}};
  }
  return route->second(RequestOf(request));
}

void Compress(HttpResponse& answer) {
  if (answer.encoded) return;
  answer.headers.emplace_back("Vary", "Accept-Encoding");
  if (!exchange->accepts_gzip || answer.body.size() < kMinCompressedBytes) return;
  std::string compressed = Gzip(answer.body);
  if (compressed.empty()) return;
  answer.body = std::move(compressed);
  answer.headers.emplace_back("Content-Encoding", "gzip");
}

void Route(const std::map<std::string, HttpResponder::Handler>& routes,
           const httplib::Request& request, httplib::Response& response) {
  HttpResponse answer = Answer(routes, request);
  if (answer.take_over && request.method == "GET") {
    exchange->take_over = std::move(answer.take_over);
    exchange->connection->Mute();
  } else {
    Compress(answer);
  }
  response.status = answer.status;
  response.set_header("X-Content-Type-Options", "nosniff");
  response.set_header("Referrer-Policy", "no-referrer");
  for (const auto& [name, value] : answer.headers) response.set_header(name, value);
  response.set_content(std::move(answer.body), answer.content_type);
}

}  // namespace

HttpResponder::HttpResponder(std::map<std::string, Handler> routes)
    : routes_(std::move(routes)), engine_(Engine::Make()) {
  // Routed here instead of by httplib's patterns.
  engine_->set_pre_routing_handler(
      [this](const httplib::Request& request, httplib::Response& response) {
        Route(routes_, request, response);
        return httplib::Server::HandlerResponse::Handled;
      });
}

HttpResponder::~HttpResponder() = default;

void HttpResponder::Serve(std::unique_ptr<Channel>& channel,
                          const std::function<void()>& before_take_over) noexcept {
  try {
    HttpConnection connection(channel.get());
    if (!connection.Open()) return;
    Exchange here{.connection = &connection};
    exchange = &here;
    bool closed = false;
    // One request per connection: an idle connection would hold one of the few workers between
    // scrapes. httplib's own compression is slow: brotli, where it may.
    engine_->process_request(
        connection, /*close_connection=*/true, closed, [&here](httplib::Request& request) {
          here.accepts_gzip = AcceptsGzip(request.get_header_value("Accept-Encoding"));
          request.headers.erase("Accept-Encoding");
          here.may_have_body = request.method != "GET" && request.method != "HEAD";
        });
    if (!here.take_over) {
      if (here.may_have_body) connection.Linger();
      return;
    }
    if (before_take_over) before_take_over();
    here.take_over(std::move(channel));
  } catch (...) {
    // For example out of memory. The client sees its connection close, the trainer sees nothing.
  }
}

}  // namespace ptqwatch::internal
