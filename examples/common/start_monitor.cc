#include "start_monitor.h"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "program.h"
#include "report_printer.h"

namespace ptqwatch::examples {

std::unique_ptr<Monitor> StartMonitor(std::unique_ptr<Subject> subject, MonitorOptions options) {
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<ReportPrinter>());
  auto monitor =
      OrUsageError(Monitor::Create(std::move(subject), std::move(options), std::move(exporters)));
  const ServerStatus served = monitor->served();
  if (!served.metrics.empty()) std::printf("metrics %s\n", served.metrics.c_str());
  if (!served.grpc.empty()) std::printf("grpc %s\n", served.grpc.c_str());
  return monitor;
}

}  // namespace ptqwatch::examples
