#include "monitor/describe.h"

#include <cstdint>
#include <memory>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

double Megabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

std::string DescribeMonitor(ProbeSuite& suite, const Staging& staging, double duty_cycle,
                            std::string_view duty_cycle_reason) {
  std::string text;
  std::string memory = StrFormat("memory while measuring: %.1f MB replica",
                                 Megabytes(suite.session().replica().bytes()));
  double seconds = 0;
  for (const std::unique_ptr<Probe>& probe : suite.probes()) {
    const ProbeDescription description = probe->Describe();
    text += description.text;
    seconds += description.seconds;
    if (description.bytes > 0) {
      memory += StrFormat(", %.1f MB %s", Megabytes(description.bytes), probe->name());
    }
  }
  text += memory;
  text += StrFormat(
      "; about %.2g s of forward passes a snapshot when all probe batches are needed, timed with "
      "the trainer's threads\n",
      seconds);
  text += StrCat("staging: ", Megabytes(staging.bytes()), " MB; duty cycle ", duty_cycle, " (",
                 duty_cycle_reason, ")\n");
  const OptimizerStaging& optimizer = staging.optimizer();
  if (optimizer.description().empty()) return text;
  text += StrCat("optimizer: ", optimizer.description());
  if (optimizer.bytes() > 0) {
    text += StrCat(": ", Megabytes(optimizer.bytes()), " MB staged and as much while measuring");
  }
  return text + "\n";
}

}  // namespace ptqwatch::internal
