// A small trainer that makes one mistake while a monitor watches it. `fault_trainer FAULT`;
// faults_test.py checks the outcome.

#include <cstdio>

#include "watched_run.h"

int main(int argc, char** argv) {
  ptqwatch::Faults faults = ptqwatch::ProcessFaults();
  faults.merge(ptqwatch::ClosureFaults());
  const auto fault = faults.find(argc > 1 ? argv[1] : "");
  if (fault == faults.end()) {
    std::fprintf(stderr, "usage: fault_trainer FAULT\n");
    return 2;
  }
  return fault->second();
}
