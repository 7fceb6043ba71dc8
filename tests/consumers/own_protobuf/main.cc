#include <iostream>
#include <string>

#include "ptqwatch/run_server.h"

std::string WriteAndRead();

int main() {
  const auto server =
      ptqwatch::RunServer::Create({"runs/later"}, {.http = "", .grpc = "127.0.0.1:0"});
  if (!server.ok()) {
    std::cerr << server.status() << "\n";
    return 1;
  }
  std::cout << "grpc " << (*server)->grpc_address() << ", " << WriteAndRead() << "\n";
}
