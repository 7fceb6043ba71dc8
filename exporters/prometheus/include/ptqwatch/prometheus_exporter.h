#ifndef PTQWATCH_PROMETHEUS_EXPORTER_H_
#define PTQWATCH_PROMETHEUS_EXPORTER_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ptqwatch/exporter.h"

namespace ptqwatch {

/// Serves GET /metrics (Prometheus text format 0.0.4) and GET /healthz over HTTP. Scrapes read the
/// newest report and the live counters; they never touch the training thread.
class PrometheusExporter : public Exporter {
 public:
  struct Options {
    /// "HOST:PORT" or "[IPV6]:PORT". Port 0 takes a free one. Only loopback is served by default.
    std::string address = "127.0.0.1:9464";
    /// Layers with their own series in ptqwatch_layer_quantization_error_ratio: those with the
    /// largest errors. The rest is shown as layer="_overflow" with their mean.
    int max_layers = 64;
  };
  /// Binds at once. InvalidArgument for an address that cannot be parsed, Unavailable (with the
  /// address and the reason) for one that cannot be bound.
  static absl::StatusOr<std::unique_ptr<PrometheusExporter>> Create(Options options);
  /// The address that is served, with the port that was taken.
  virtual const std::string& address() const = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_PROMETHEUS_EXPORTER_H_
