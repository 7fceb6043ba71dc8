#include "monitor/describe.h"

#include <cstdint>
#include <memory>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

double Megabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

// What a snapshot is measured with, and the seconds of work that takes.
std::string DescribeWork(const Planner& planner, const MonitorOptions& options) {
  const Plan& plan = planner.plan();
  std::string text = StrCat("plan: ", DescribePlan(plan, planner.range()), "\n");
  text += StrFormat("  quantization    about %.2g s of work at every snapshot\n",
                    QuantizationSeconds(plan, planner.range(), planner.costs()));
  if (plan.curvature_sequences > 0) {
    text += StrFormat(
        "  curvature       about %.2g s of work, %.2g s a snapshot in the mean\n",
        CurvatureSeconds(plan, planner.costs()),
        CurvatureSeconds(plan, planner.costs()) / static_cast<double>(plan.curvature_every));
  }
  if (!options.adapt_plan) {
    text += "  kept whatever it takes (adapt_plan is off)\n";
  } else {
    text += "  estimated; fitted to the time between snapshots once that is known\n";
  }
  if (options.duty_cycle) {
    return text + StrCat("pace: duty cycle ", *options.duty_cycle, ", as asked for\n");
  }
  return text + StrFormat(
                    "pace: without pause on a spare core, otherwise a duty cycle of %.1f %% in the "
                    "long run (max_overhead %g)\n",
                    200 * options.max_overhead, options.max_overhead);
}

}  // namespace

std::string DescribeMonitor(ProbeSuite& suite, const Staging& staging, const Planner& planner,
                            const MonitorOptions& options) {
  std::string text;
  std::string memory = StrFormat("memory while measuring: %.1f MB replica",
                                 Megabytes(suite.session().replica().bytes()));
  for (const std::unique_ptr<Probe>& probe : suite.probes()) {
    const ProbeDescription description = probe->Describe();
    text += description.text;
    if (description.bytes > 0) {
      memory += StrFormat(", %.1f MB %s", Megabytes(description.bytes), probe->name());
    }
  }
  text += memory;
  text += StrFormat(", %.1f MB staging\n", Megabytes(staging.bytes()));
  text += DescribeWork(planner, options);
  const OptimizerStaging& optimizer = staging.optimizer();
  if (optimizer.description().empty()) return text;
  text += StrCat("optimizer: ", optimizer.description());
  if (optimizer.bytes() > 0) {
    text += StrCat(": ", Megabytes(optimizer.bytes()), " MB staged and as much while measuring");
  }
  return text + "\n";
}

}  // namespace ptqwatch::internal
