#ifndef PTQWATCH_PROMETHEUS_EXPORTER_H_
#define PTQWATCH_PROMETHEUS_EXPORTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/server_security.h"

namespace ptqwatch {

struct PrometheusOptions {
  /// "HOST:PORT" or "[IPV6]:PORT". Port 0 takes a free one.
  std::string address = "127.0.0.1:9464";
  /// Serve other machines, too. Without `security`, whoever reaches the port can read the metrics
  /// and reports.
  bool allow_remote = false;
  /// TLS, client certificates and a token, which /metrics, the live page and the HTTP API ask for:
  /// 401 without it. /healthz and /readyz then answer everybody with their status alone, and with
  /// the token with their details.
  ServerSecurity security = {};
  /// Layers with series of their own in metrics that have a `layer` label: those with the largest
  /// values, of which one keeps its place until it has fallen a quarter of this number behind. The
  /// others are folded into layer="_overflow", which shows their mean. 0 or more.
  int max_layers = 64;
  /// Host names, without a port, by which the live page and the HTTP API may be asked for, beside
  /// "localhost", IP addresses and the host of `address`. Others are refused: a name of another
  /// site may lead to this server (DNS rebinding), whose pages could then read it.
  std::vector<std::string> allowed_hosts = {};
  /// Open streams of events, of which each page has one; one more gets 503. They keep nothing from
  /// a scrape. 0 or more.
  int max_streams = 64;
  /// Limits of the history that the live page and the HTTP API show: the newest reports, up to this
  /// number and up to this many bytes, of which a quarter is for their series. The newest is always
  /// kept.
  int history_reports = 1024;
  int64_t history_bytes = int64_t{64} << 20;
  /// So many bytes of the history are held in memory; older reports lie in a file without a name in
  /// $TMPDIR, else /tmp. By default none do.
  int64_t history_memory_bytes = int64_t{64} << 20;
  /// With kInert, an exporter whose address is in use or cannot be served is created all the same:
  /// address() is empty, and Monitor::Create leaves it out and says why.
  OnFailure on_failure = OnFailure::kInert;
};

/// Serves over HTTP: GET /metrics (Prometheus text format 0.0.4, or OpenMetrics 1.0.0 where asked
/// for); a live page at / and what it reads, /api/v1/... (docs/operations.md); GET /healthz, 200 as
/// long as the process lives; GET /readyz, 200 while everything is measured that should be, else
/// 503. Both say in JSON how the monitor is. Never make a training run's life depend on /readyz. A
/// scrape reads the newest report and the live counters; it never touches the training thread.
/// Thread-safe.
class PTQWATCH_EXPORT PrometheusExporter : public Exporter {
 public:
  /// Binds at once; /metrics and /readyz answer 503 until Start. InvalidArgument for an option out
  /// of range, an address that cannot be parsed, one that is not a loopback address unless
  /// allow_remote, and a file of `security` that cannot be used. With on_failure = kError also
  /// Unavailable, with the address and the reason, for one that does not resolve or cannot be
  /// bound.
  static absl::StatusOr<std::unique_ptr<PrometheusExporter>> Create(PrometheusOptions options);
  /// The address that is served, with the port that was taken; empty where none is.
  virtual const std::string& address() const = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_PROMETHEUS_EXPORTER_H_
