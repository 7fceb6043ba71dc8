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

/// The parts of a request that handlers read. Absent headers are empty.
struct HttpRequest {
  std::string method = "GET";
  std::string path;                                    ///< decoded, without the query
  std::multimap<std::string, std::string> parameters;  ///< from the query, decoded
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
  /// The body is already encoded as `headers` say. Other bodies are compressed if the client asks.
  bool encoded = false;
  /// Produces the parts after the body. Called when the client has taken everything sent so far,
  /// after HttpServer::Wake and once a second. An empty string means nothing to send yet; nullopt
  /// ends the stream and closes the connection.
  std::function<std::optional<std::string>()> stream = nullptr;
};

using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

/// Sets path and parameters from a request target such as "/a%20b?c=d&e=+".
void SetTarget(HttpRequest& request, std::string_view target);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_HTTP_MESSAGE_H_
