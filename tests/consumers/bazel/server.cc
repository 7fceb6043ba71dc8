// The exporters and the quantization engine, found and linked; each serves a free port for a
// moment.
#include <cstdlib>
#include <iostream>

#include "ptqwatch/grpc_exporter.h"
#include "ptqwatch/prometheus_exporter.h"
#include "ptqwatch/quantizer.h"

int main() {
  const auto grpc = ptqwatch::GrpcExporter::Create({.address = "127.0.0.1:0"});
  const auto http = ptqwatch::PrometheusExporter::Create({.address = "127.0.0.1:0"});
  const auto method = ptqwatch::ParseQuantizationMethod("GPTQ");
  if (!grpc.ok() || !http.ok() || !method.ok()) return EXIT_FAILURE;
  std::cout << ptqwatch::ToString(*method) << ": gRPC at " << (*grpc)->address() << ", HTTP at "
            << (*http)->address() << "\n";
}
