#include "monitor/describe.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

double Megabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

// Empty if there is no choice of device.
std::string DescribeDevice(const MonitorDevice& device) {
  if (device.note.empty()) return "";
  std::string text = StrCat("measured on ", device.device.str(), ": ", device.note, "\n");
  if (!device.warning.empty()) text += StrCat("  ", device.warning, "\n");
  return text;
}

// Batches that Create did not evaluate, so a mistake in them is still undetected.
std::string DescribeUnchecked(const ModelSession& session) {
  if (session.unchecked().empty()) return "";
  return StrCat("not evaluated by Create for lack of time: ", session.unchecked(),
                "; a mistake in one of them shows when it is measured\n");
}

// The plan of a snapshot, and its seconds of work.
std::string DescribeWork(const Planner& planner, const MonitorOptions& options) {
  const Plan& plan = planner.plan();
  const PlanModel& model = planner.model();
  std::string text = StrCat("plan: ", model.Describe(plan), "\n");
  text += StrFormat("  quantization    about %.2g s of work at every snapshot\n",
                    model.Quantization(plan));
  if (plan.curvature_sequences > 0) {
    text += StrFormat("  curvature       about %.2g s of work, on average %.2g s per snapshot\n",
                      model.Curvature(plan), model.Mean(plan) - model.Quantization(plan));
  }
  if (!options.adapt_plan) {
    text += "  fixed, whatever the cost (adapt_plan is off)\n";
  } else {
    text += "  estimated; adapted to the time between snapshots once it is known\n";
  }
  if (options.duty_cycle) {
    return text +
           StrCat("pace: duty cycle ", *options.duty_cycle, " (MonitorOptions.duty_cycle)\n");
  }
  return text + StrFormat(
                    "pace: training loses at most %g %% of its time to copies, the monitor's work "
                    "and the server beside it (max_overhead); without pause on a spare core\n",
                    100 * options.max_overhead);
}

// The memory held by each part, and the peak.
MonitorDescription DescribeMemory(const ModelSession& session, const OptimizerStaging& optimizer,
                                  const ProbeSuite& suite, const std::vector<ProbeNeeds>& probes,
                                  const MonitorOptions& options) {
  const SessionBytes& bytes = session.bytes();
  int64_t always = 0;
  int64_t kept = 0;
  int64_t most = 0;
  int64_t lacking = 0;
  std::string parts;
  const auto add = [&](std::string_view name, int64_t held) {
    if (held > 0) parts += StrFormat("  %-28s %9.1f MB\n", name, Megabytes(held));
  };
  add("replica", bytes.replica);
  add("staged snapshot", bytes.staging);
  add("optimizer, twice", 2 * optimizer.bytes());
  add("batches", bytes.batches);
  add("a forward pass", bytes.forward);
  add("small things", bytes.small);
  for (size_t i = 0; i < probes.size(); ++i) {
    const ProbeNeeds& probe = probes[i];
    add(suite.probes()[i]->name(), probe.bytes);
    most = std::max(most, kept + probe.bytes);
    kept += probe.kept_bytes;
    always += probe.always_bytes;
    lacking += probe.lacking_bytes;
    if (probe.kept_bytes > 0) {
      parts += StrFormat("    kept for the next         %9.1f MB\n", Megabytes(probe.kept_bytes));
    }
    if (probe.always_bytes > 0) {
      parts += StrFormat("    held between snapshots    %9.1f MB\n", Megabytes(probe.always_bytes));
    }
  }
  // Memory is reserved before use; parts that do not fit are left out.
  const int64_t wanted = bytes.sum() + 2 * optimizer.bytes() + always + most;
  std::string text =
      StrFormat("memory: %.1f MB at most, of %.1f MB allowed (max_bytes)\n",
                Megabytes(std::min(wanted, options.max_bytes)), Megabytes(options.max_bytes));
  if (wanted > options.max_bytes) {
    text += StrFormat("  everything together takes %.1f MB: parts that do not fit are left out\n",
                      Megabytes(wanted));
  }
  // The quantized weights are held beside curvature until it has measured along their errors.
  const int64_t quantized = static_cast<int64_t>(sizeof(float)) * std::ssize(options.quantizers) *
                            session.plan().covered_parameters;
  const int64_t enough = std::max(wanted, wanted - most + lacking + quantized);
  if (lacking > 0) text += StrCat("  max_bytes = ", enough, " would leave room for the rest\n");
  return {text + parts, enough};
}

}  // namespace

MonitorDescription DescribeMonitor(ProbeSuite& suite, const Jobs& jobs, const Staging& staging,
                                   const Planner& planner, const MonitorOptions& options,
                                   const ByteBudget& budget) {
  std::string text = DescribeDevice(suite.session().device());
  const std::vector<ProbeNeeds> probes = suite.Needs(budget.remaining());
  for (const ProbeNeeds& probe : probes) text += probe.text;
  text += jobs.Describe();
  text += DescribeUnchecked(suite.session());
  const MonitorDescription memory =
      DescribeMemory(suite.session(), staging.optimizer(), suite, probes, options);
  text += memory.text;
  text += DescribeWork(planner, options);
  const std::string& optimizer = staging.optimizer().description();
  if (!optimizer.empty()) text += StrCat("optimizer: ", optimizer, "\n");
  return {std::move(text), memory.enough_bytes};
}

}  // namespace ptqwatch::internal
