#include "http/router.h"

#include <cstddef>
#include <utility>

#include "base/guard.h"
#include "http/gzip.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kMinCompressedBytes = 1024;

HttpResponse Route(const HttpRoutes& routes, const HttpRequest& request) {
  const auto route = routes.find(request.path);
  if (route == routes.end()) return {.status = 404, .body = "not found\n"};
  if (request.method != "GET" && request.method != "HEAD") {
    return {.status = 405, .body = "method not allowed\n", .headers = {{"Allow", "GET, HEAD"}}};
  }
  const absl::StatusOr<HttpResponse> answer =
      Guard([&]() -> absl::StatusOr<HttpResponse> { return route->second(request); });
  return answer.ok() ? *answer : HttpResponse{.status = 500, .body = "internal error\n"};
}

void Compress(const HttpRequest& request, HttpResponse& answer) {
  if (answer.encoded || answer.stream) return;
  answer.headers.emplace_back("Vary", "Accept-Encoding");
  if (answer.body.size() < kMinCompressedBytes || !AcceptsGzip(request.accept_encoding)) return;
  std::string compressed = Gzip(answer.body);
  if (compressed.empty()) return;
  answer.body = std::move(compressed);
  answer.headers.emplace_back("Content-Encoding", "gzip");
}

}  // namespace

HttpHandler MakeRouter(HttpRoutes routes) {
  return [routes = std::move(routes)](const HttpRequest& request) {
    HttpResponse answer = Route(routes, request);
    Compress(request, answer);
    answer.headers.emplace_back("X-Content-Type-Options", "nosniff");
    answer.headers.emplace_back("Referrer-Policy", "no-referrer");
    return answer;
  };
}

}  // namespace ptqwatch::internal
