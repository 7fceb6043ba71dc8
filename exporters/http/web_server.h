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

/// Serves runs over HTTP: GET /metrics (Prometheus text format 0.0.4, or OpenMetrics 1.0.0 on
/// request); the live page at / and the API it reads, /api/v1/... (docs/api.md); GET
/// /healthz, 200 while the process lives; GET /readyz, 200 if every run is measuring, about to
/// measure or over, else 503. Thread-safe.
class WebServer {
 public:
  struct Options {
    HttpServer::Options http = {};
    /// Required by all pages except /healthz and /readyz, which show no details without it.
    BearerToken token = {};
    /// The number of layers with series of their own in a metric with a `layer` label: the layers
    /// with the largest values. The mean of the others is shown as layer="_overflow".
    int max_layers = 64;
    /// Additional host names, without a port, in requests for the live page and the HTTP API,
    /// beside "localhost", IP addresses and the listen host. Other names are refused: a name of
    /// another site may resolve to this server (DNS rebinding), and the pages of that site could
    /// then read it.
    std::vector<std::string> allowed_hosts = {};
    size_t max_streams = 1024;  ///< event streams, one per open page; further ones get 503
  };

  /// Binds and serves at once. Returns the errors of HttpServer::Start. `runs` must outlive this.
  static absl::StatusOr<std::unique_ptr<WebServer>> Start(Options options, const ServedRuns* runs);
  virtual ~WebServer() = default;

  /// The host from the options with the port in use.
  virtual const std::string& address() const = 0;
  /// Sends newly published data to the streams. Callable from any thread; returns at once.
  virtual void Wake() = 0;
  /// Closes all connections and joins the thread; idempotent.
  virtual void Stop() = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_WEB_SERVER_H_
