#ifndef PTQWATCH_PROMETHEUS_RUN_VIEWS_H_
#define PTQWATCH_PROMETHEUS_RUN_VIEWS_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "http_server.h"
#include "ptqwatch/exporter.h"

namespace ptqwatch::internal {

/// A run as a scrape shows it, taken at one moment.
struct RunView {
  std::string run;
  RunInfo info;
  MonitorStatus status;
  std::shared_ptr<const AnalyzedReport> report;
};

/// The runs of an HTTP server, and its pages. Thread-safe.
class RunViews {
 public:
  /// The exporter of one more run; AlreadyExists for a second one of a name. It must not outlive
  /// this.
  absl::StatusOr<std::unique_ptr<Exporter>> Add(const std::string& run);

  /// 503 while there is no run.
  HttpResponse Metrics(int max_layers) const;
  /// Always 200: the process is alive, or it would not answer. Whoever restarts it for a
  /// measurement that failed ends a training run.
  HttpResponse Healthz() const;
  HttpResponse Readyz() const;

 private:
  class RunExporter;
  // The lock is held for a copy only, never while a page is rendered.
  std::vector<RunView> Look() const;

  mutable Mutex mutex_;
  std::map<std::string, StatusSource*> sources_ ABSL_GUARDED_BY(mutex_);  // null before Start
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROMETHEUS_RUN_VIEWS_H_
