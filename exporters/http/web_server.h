#ifndef PTQWATCH_HTTP_WEB_SERVER_H_
#define PTQWATCH_HTTP_WEB_SERVER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "feed/served_runs.h"
#include "http/server/http_server.h"
#include "security/check_security.h"

namespace ptqwatch::internal {

/// Serves runs over HTTP: GET /metrics (Prometheus text format 0.0.4, or OpenMetrics 1.0.0 if asked
/// for); a live page at / and what it reads, /api/v1/... (docs/operations.md); GET /healthz, 200 as
/// long as the process lives; GET /readyz, 200 while each run measures, is about to or is over,
/// else 503. Thread-safe.
class WebServer {
 public:
  struct Options {
    HttpServer::Options http = {};
    BearerToken token =
        {};  ///< of all pages but /healthz and /readyz, which give strangers no details
    /// Layers with series of their own in metrics that have a `layer` label: those with the largest
    /// values. The others are folded into layer="_overflow", which shows their mean.
    int max_layers = 64;
    /// Host names, without a port, by which the live page and the HTTP API may be asked for, beside
    /// "localhost", IP addresses and the host of the address. Others are refused: a name of another
    /// site may lead to this server (DNS rebinding), whose pages could then read it.
    std::vector<std::string> allowed_hosts = {};
    size_t max_streams = 1024;  ///< of events, one a page; one more gets 503
  };

  /// Binds and serves at once; errors as HttpServer::Start. `runs` must outlive this.
  static absl::StatusOr<std::unique_ptr<WebServer>> Start(Options options, const ServedRuns* runs);
  virtual ~WebServer() = default;

  /// The host as it was given and the port that was taken.
  virtual const std::string& address() const = 0;
  /// Something was published. Any thread; returns at once.
  virtual void Wake() = 0;
  /// Closes all connections and joins the thread; idempotent.
  virtual void Stop() = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_WEB_SERVER_H_
