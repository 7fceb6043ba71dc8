#ifndef PTQWATCH_MONITOR_MONITOR_PARTS_H_
#define PTQWATCH_MONITOR_MONITOR_PARTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/analyzer.h"
#include "monitor/planner.h"
#include "monitor/run_state.h"
#include "monitor/work_budget.h"
#include "probes/probe_state.h"
#include "probes/probe_suite.h"
#include "probes/slice_tracker.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "ptqwatch/status.h"
#include "ptqwatch/subject.h"
#include "trainer/staging.h"

namespace ptqwatch::internal {

/// What a monitor is made of, from its options and what they lead to. All for Create alone.

int TrainingThreads(const MonitorOptions& options);

/// MonitorOptions::max_bytes, or its default.
int64_t MaxBytes(const MonitorOptions& options);

WorkBudget::Options BudgetOptions(const MonitorOptions& options, const MonitorDevice& device);

/// Opens the subject and sets the probes up within the context's bytes. `options` have max_bytes.
absl::StatusOr<std::shared_ptr<ProbeSuite>> OpenSuite(Subject& subject,
                                                      const MonitorOptions& options,
                                                      SliceTracker* slices,
                                                      CooldownTracker* cooldowns,
                                                      const ExecutionContext& context);

/// FailedPrecondition where the run directory has a run of another fingerprint, unless that is
/// allowed.
absl::Status CheckSameRun(const RunState& state, const RunInfo& run, const MonitorOptions& options);

/// The plan of the attempt before, whose series this one goes on with.
std::optional<Plan> KeptPlan(const RunState& state, const std::string& fingerprint);

/// Until the first steps have shown what the machine has to spare, and how long a step takes.
Planner MakePlanner(ProbeSuite& suite, const MonitorOptions& options,
                    const WorkBudget::Options& budget, std::optional<Plan> kept);

/// The monitor's own memory for a snapshot; of the optimizer, what the curvature probe needs, where
/// `bytes` allows that. `beside`: MonitorOptions::copy_beside_training.
absl::StatusOr<std::shared_ptr<Staging>> MakeStaging(ProbeSuite& suite,
                                                     const std::shared_ptr<ByteBudget>& bytes,
                                                     bool beside);

RunInfo MakeRunInfo(const RunState& state, ModelSession& session, const MonitorOptions& options);

ProbeState ReadProbeState(const RunState& state, const RunInfo& run, ProbeSuite& suite);

/// What earlier attempts leave to judge the next report with.
struct JudgedHistory {
  Analyzer analyzer;
  /// Of the newest report that says anything: what it says has been announced.
  VerdictState state = VerdictState::kUnknown;
};
JudgedHistory Judge(const std::vector<AnalyzedReport>& history);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_MONITOR_PARTS_H_
