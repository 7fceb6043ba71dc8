#ifndef PTQWATCH_PROMETHEUS_EXPORTER_H_
#define PTQWATCH_PROMETHEUS_EXPORTER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/exporter.h"

namespace ptqwatch {

struct PrometheusOptions {
  /// "HOST:PORT" or "[IPV6]:PORT". Port 0 takes a free one.
  std::string address = "127.0.0.1:9464";
  /// Serve other machines, too. There is no TLS and no login: whoever reaches the port can read the
  /// metrics.
  bool allow_remote = false;
  /// Layers with series of their own in metrics that have a `layer` label: those with the largest
  /// values. The others are folded into layer="_overflow", which shows their mean. 0 or more.
  int max_layers = 64;
  /// With kInert, an exporter whose address is in use or cannot be served is created all the same:
  /// address() is empty, and Monitor::Create leaves it out and says why.
  OnFailure on_failure = OnFailure::kInert;
};

/// Serves over HTTP: GET /metrics (Prometheus text format 0.0.4); GET /healthz, 200 as long as the
/// process lives; GET /readyz, 200 while everything is measured that should be, else 503. Both say
/// in JSON how the monitor is. Never make a training run's life depend on /readyz. A scrape reads
/// the newest report and the live counters; it never touches the training thread. Thread-safe.
class PrometheusExporter : public Exporter {
 public:
  /// Binds at once; /metrics and /readyz answer 503 until Start. InvalidArgument for an option out
  /// of range, an address that cannot be parsed, and one that is not a loopback address unless
  /// allow_remote. With on_failure = kError also Unavailable, with the address and the reason, for
  /// one that does not resolve or cannot be bound.
  static absl::StatusOr<std::unique_ptr<PrometheusExporter>> Create(PrometheusOptions options);
  /// The address that is served, with the port that was taken; empty where none is.
  virtual const std::string& address() const = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_PROMETHEUS_EXPORTER_H_
