#include "exporters.h"

#include <utility>

#include "program.h"
#include "ptqwatch/grpc_exporter.h"
#include "ptqwatch/prometheus_exporter.h"
#include "report_printer.h"

namespace ptqwatch::examples {

Exporters MakeExporters(const TrainerFlags& flags) {
  Exporters made;
  if (flags.http != "off") {
    auto prometheus = OrUsageError(PrometheusExporter::Create({.address = flags.http}), "--http: ");
    if (!prometheus->address().empty()) {
      made.addresses += "metrics http://" + prometheus->address() + "/metrics\n";
    }
    made.list.push_back(std::move(prometheus));
  }
  if (flags.grpc != "off") {
    auto grpc = OrUsageError(
        GrpcExporter::Create({.address = flags.grpc, .allow_control = flags.allow_control}),
        "--grpc: ");
    if (!grpc->address().empty()) made.addresses += "grpc " + grpc->address() + "\n";
    made.list.push_back(std::move(grpc));
  }
  made.list.push_back(std::make_unique<ReportPrinter>());
  return made;
}

}  // namespace ptqwatch::examples
