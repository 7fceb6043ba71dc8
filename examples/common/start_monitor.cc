#include "start_monitor.h"

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "program.h"
#include "report_printer.h"

namespace ptqwatch::examples {

std::unique_ptr<Monitor> StartMonitor(std::unique_ptr<Subject> subject, MonitorOptions options) {
  std::vector<std::unique_ptr<Exporter>> exporters;
  if (!options.process) exporters.push_back(std::make_unique<ReportPrinter>());
  auto monitor =
      OrUsageError(Monitor::Create(std::move(subject), std::move(options), std::move(exporters)));
  ServerStatus served = monitor->served();
  while (served.state == ServerState::kStarting) {  // on a busy machine
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    served = monitor->served();
  }
  if (!served.metrics.empty()) std::printf("metrics %s\n", served.metrics.c_str());
  if (!served.grpc.empty()) std::printf("grpc %s\n", served.grpc.c_str());
  return monitor;
}

}  // namespace ptqwatch::examples
