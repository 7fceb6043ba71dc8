#ifndef PTQWATCH_PROMETHEUS_HTTP_MESSAGE_H_
#define PTQWATCH_PROMETHEUS_HTTP_MESSAGE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ptqwatch::internal {

class Channel;

/// A GET or HEAD request, as far as anybody here looks at it. Absent headers are empty.
struct HttpRequest {
  std::string path;                                    ///< decoded, without the query
  std::multimap<std::string, std::string> parameters;  ///< of the query, decoded
  std::string host;
  std::string origin;
  std::string authorization;
  std::string accept;
  std::string if_none_match;
  std::string last_event_id;
  bool accepts_gzip = false;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
  /// The body is a ready response in the encoding that `headers` name; others are compressed for
  /// those who ask for it.
  bool encoded = false;
  /// Instead of a body: gets the connection, and sends what it likes, beginning with the status
  /// line. Must not block.
  std::function<void(std::unique_ptr<Channel>)> take_over = nullptr;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROMETHEUS_HTTP_MESSAGE_H_
