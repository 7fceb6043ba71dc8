#include <iostream>
#include <string>

#include "ptqwatch/grpc_exporter.h"

std::string WriteAndRead();

int main() {
  const auto exporter = ptqwatch::GrpcExporter::Create({.address = "127.0.0.1:0"});
  if (!exporter.ok() || (*exporter)->address().empty()) {
    std::cerr << exporter.status() << "\n";
    return 1;
  }
  std::cout << "grpc " << (*exporter)->address() << ", " << WriteAndRead() << "\n";
}
