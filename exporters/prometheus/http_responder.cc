#include "http_responder.h"

#include <signal.h>

#include <utility>

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

void Route(const std::map<std::string, HttpResponder::Handler>& routes,
           const httplib::Request& request, httplib::Response& response) {
  const auto route = routes.find(request.path);
  HttpResponse answer;
  if (route == routes.end()) {
    answer = {.status = 404, .body = "not found\n"};
  } else if (request.method != "GET" && request.method != "HEAD") {
    response.set_header("Allow", "GET, HEAD");
    answer = {.status = 405, .body = "method not allowed\n"};
  } else {
    answer = route->second();
  }
  response.status = answer.status;
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

void HttpResponder::Serve(int socket) noexcept {
  try {
    HttpConnection connection(socket);
    bool closed = false;
    // One request per connection: an idle connection would hold one of the few workers between
    // scrapes. Ranges are ignored: httplib would copy the page once for each of them, and a
    // request may ask for thousands.
    engine_->process_request(connection, /*close_connection=*/true, closed,
                             [](httplib::Request& request) { request.ranges.clear(); });
  } catch (...) {
    // For example out of memory. The client sees its connection close, the trainer sees nothing.
  }
}

}  // namespace ptqwatch::internal
