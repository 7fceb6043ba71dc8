// A program beside the trainer that prints the verdict at each report.
#include "ptqwatch/client.h"

#include <cstdio>
#include <memory>
#include <string>

int main(int argc, char** argv) {
  const auto run = ptqwatch::OpenRemoteRun({.address = argc > 1 ? argv[1] : "localhost:9465"});
  if (!run.ok()) {
    std::fprintf(stderr, "%s\n", run.status().ToString().c_str());
    return 2;
  }
  const auto reports = (*run)->Reports({.without_layers = true});
  if (!reports.ok()) {
    std::fprintf(stderr, "%s\n", reports.status().ToString().c_str());
    return 1;
  }
  for (const ptqwatch::AnalyzedReport& report : *reports) {
    std::printf("step %lld: %s\n", static_cast<long long>(report.report.step),
                std::string(ToString(report.verdict.state)).c_str());
  }
}
