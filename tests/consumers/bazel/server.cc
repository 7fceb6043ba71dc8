// Links the servers and the quantization engine, and serves free ports for a moment.
#include <cstdlib>
#include <iostream>

#include "ptqwatch/quantizer.h"
#include "ptqwatch/run_server.h"

int main() {
  const auto server =
      ptqwatch::RunServer::Create({"runs/later"}, {.http = "127.0.0.1:0", .grpc = "127.0.0.1:0"});
  const auto method = ptqwatch::ParseQuantizationMethod("GPTQ");
  if (!server.ok() || !method.ok()) return EXIT_FAILURE;
  std::cout << ptqwatch::ToString(*method) << ": gRPC at " << (*server)->grpc_address()
            << ", HTTP at " << (*server)->http_address() << "\n";
}
