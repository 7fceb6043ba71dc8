#ifndef PTQWATCH_HTTP_HTTP_MESSAGE_H_
#define PTQWATCH_HTTP_HTTP_MESSAGE_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ptqwatch::internal {

/// A request, as far as a handler reads it. Absent headers are empty.
struct HttpRequest {
  std::string method = "GET";
  std::string path;                                    ///< decoded, without the query
  std::multimap<std::string, std::string> parameters;  ///< of the query, decoded
  std::string host;
  std::string origin;
  std::string authorization;
  std::string accept;
  std::string accept_encoding;
  std::string if_none_match;
  std::string last_event_id;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
  /// The body is in the encoding that `headers` name. Others are compressed if the client asks.
  bool encoded = false;
  /// The parts after the body: called whenever the client has taken everything before, and again
  /// after HttpServer::Wake and once a second. Empty: nothing to send yet; nullopt: the end, at
  /// which the connection is closed.
  std::function<std::optional<std::string>()> stream = nullptr;
};

using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

/// Sets path and parameters to those of a request's target, as in "/a%20b?c=d&e=+".
void SetTarget(HttpRequest& request, std::string_view target);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_HTTP_MESSAGE_H_
