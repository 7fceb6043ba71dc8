#ifndef PTQWATCH_PROMETHEUS_HUB_H_
#define PTQWATCH_PROMETHEUS_HUB_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/prometheus_exporter.h"

namespace ptqwatch {

/// Serves any number of runs over HTTP at one address, as PrometheusExporter serves one: for a
/// process that follows runs and does not train. Every series has a label `run`. /healthz and
/// /readyz list the runs; /readyz is 200 while each of them measures, is about to or is over.
/// Thread-safe.
class PTQWATCH_EXPORT PrometheusHub {
 public:
  /// As PrometheusExporter::Create, but with an address that cannot be served it fails whatever
  /// `on_failure` is.
  static absl::StatusOr<std::unique_ptr<PrometheusHub>> Create(PrometheusOptions options);
  /// Stop().
  virtual ~PrometheusHub() = default;

  virtual const std::string& address() const = 0;
  /// One more run, by this name. It is shown from the exporter's Start to its Stop. AlreadyExists
  /// for a name that is shown. The hub must outlive the exporter.
  virtual absl::StatusOr<std::unique_ptr<Exporter>> AddRun(const std::string& run) = 0;
  /// Closes all connections and joins the threads; idempotent.
  virtual void Stop() = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_PROMETHEUS_HUB_H_
