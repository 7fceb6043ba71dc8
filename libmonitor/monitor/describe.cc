#include "monitor/describe.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
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

// Lists the parts that are held of one budget.
struct Held {
  void Add(std::string_view name, int64_t part) {
    bytes += part;
    AddLine(name, part);
  }
  void AddLine(std::string_view name, int64_t part) {
    if (part > 0) parts += StrFormat("  %-28s %9.1f MB\n", name, Megabytes(part));
  }
  // `where` is empty if there is one budget.
  std::string Describe(std::string_view where, std::string_view allowed_by,
                       const ByteBudget& budget) const {
    std::string text = StrFormat("memory%s: %.1f MB at most, of %.1f MB allowed (%s)\n", where,
                                 Megabytes(std::min(bytes, budget.limit())),
                                 Megabytes(budget.limit()), allowed_by);
    if (bytes > budget.limit()) {
      text += StrFormat("  everything together takes %.1f MB: parts that do not fit are left out\n",
                        Megabytes(bytes));
    }
    return text;
  }

  int64_t bytes = 0;  // at the peak
  std::string parts;
};

// Adds what the probes hold. Returns {bytes at the peak of the largest, bytes that are lacking}.
std::pair<int64_t, int64_t> AddProbes(const ProbeSuite& suite,
                                      const std::vector<ProbeNeeds>& probes, Held& held) {
  int64_t always = 0;
  int64_t kept = 0;
  int64_t most = 0;
  int64_t lacking = 0;
  for (size_t i = 0; i < probes.size(); ++i) {
    const ProbeNeeds& probe = probes[i];
    held.AddLine(suite.probes()[i]->name(), probe.bytes);
    most = std::max(most, kept + probe.bytes);
    kept += probe.kept_bytes;
    always += probe.always_bytes;
    lacking += probe.lacking_bytes;
    held.AddLine("  kept for the next", probe.kept_bytes);
    held.AddLine("  held between snapshots", probe.always_bytes);
  }
  held.bytes += always + most;
  return {most, lacking};
}

// The memory held by each part, and the peak, for each device that holds some.
MonitorDescription DescribeMemory(const ModelSession& session, const OptimizerStaging& optimizer,
                                  const ProbeSuite& suite, const std::vector<ProbeNeeds>& probes,
                                  const MonitorOptions& options) {
  const SessionBytes& bytes = session.bytes();
  const SessionBudgets& budgets = session.budgets();
  const bool on_gpu = budgets.measuring != budgets.host;
  const bool copies_apart = budgets.copies != budgets.measuring;
  Held measuring;
  Held copies;
  Held host;
  measuring.Add("replica", bytes.replica);
  // A worker on a GPU has its snapshots on the host.
  Held& apart = budgets.copies == budgets.host ? host : copies;
  (copies_apart ? apart : measuring).Add("staged snapshot", bytes.staging);
  if (copies_apart) {
    apart.Add("optimizer", optimizer.bytes());
    measuring.Add("optimizer", optimizer.bytes());
  } else {
    measuring.Add("optimizer, twice", 2 * optimizer.bytes());
  }
  measuring.Add("batches", bytes.batches);
  measuring.Add("a forward pass", bytes.forward);
  (on_gpu ? host : measuring).Add("small things", bytes.small);
  const auto [most, lacking] = AddProbes(suite, probes, measuring);

  constexpr std::string_view kFree = "free beside device_reserve_bytes";
  constexpr std::string_view kOption = "max_bytes";
  MonitorDescription memory;
  memory.text = measuring.Describe(on_gpu ? StrCat(" on ", session.device().device.str()) : "",
                                   on_gpu ? kFree : kOption, *budgets.measuring);
  // Memory is reserved before use; parts that do not fit are left out. The quantized weights are
  // held beside curvature until it has measured along their errors.
  const int64_t quantized = static_cast<int64_t>(sizeof(float)) * suite.share().OwnQuantizers() *
                            session.plan().covered_parameters;
  if (!on_gpu || options.max_bytes > 0) {
    memory.enough_bytes = std::max(measuring.bytes, measuring.bytes - most + lacking + quantized);
    if (lacking > 0) {
      memory.text +=
          StrCat("  max_bytes = ", memory.enough_bytes, " would leave room for the rest\n");
    }
  }
  memory.text += measuring.parts;
  if (copies_apart && copies.bytes > 0) {
    memory.text += copies.Describe(" on the model's GPU", kFree, *budgets.copies) + copies.parts;
  }
  if (on_gpu) memory.text += host.Describe(" on the host", kOption, *budgets.host) + host.parts;
  return memory;
}

}  // namespace

MonitorDescription DescribeMonitor(ProbeSuite& suite, const Jobs& jobs,
                                   const OptimizerStaging& optimizer, const Planner& planner,
                                   const MonitorOptions& options) {
  std::string text = suite.share().Describe(options);
  text += DescribeDevice(suite.session().device());
  const std::vector<ProbeNeeds> probes =
      suite.Needs(suite.session().budgets().measuring->remaining());
  for (const ProbeNeeds& probe : probes) text += probe.text;
  text += jobs.Describe();
  text += DescribeUnchecked(suite.session());
  const MonitorDescription memory =
      DescribeMemory(suite.session(), optimizer, suite, probes, options);
  text += memory.text;
  text += DescribeWork(planner, options);
  if (!optimizer.description().empty()) {
    text += StrCat("optimizer: ", optimizer.description(), "\n");
  }
  return {std::move(text), memory.enough_bytes};
}

}  // namespace ptqwatch::internal
