#include "monitor/monitor_parts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "absl/cleanup/cleanup.h"
#include "base/free_memory.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/usable_cores.h"
#include "curvature/replica_surface.h"
#include "monitor/compute_thread.h"
#include "monitor/fingerprint.h"
#include "monitor/measured_costs.h"
#include "snapshot/optimizer_staging.h"

namespace ptqwatch::internal {

int64_t MaxBytes(const MonitorOptions& options) {
  if (options.max_bytes > 0) return options.max_bytes;
  return FreeMemoryBytes() / 4;
}

absl::StatusOr<std::shared_ptr<ProbeSuite>> OpenSuite(Subject& subject,
                                                      const MonitorOptions& options,
                                                      SliceTracker* slices,
                                                      CooldownTracker* cooldowns,
                                                      const ExecutionContext& context) {
  std::shared_ptr<ProbeSuite> suite;
  const auto open = [&]() -> absl::Status {
    PTQWATCH_ASSIGN_OR_RETURN(
        auto session, ModelSession::Open(subject, SessionOptions(options, {}, context.bytes)));
    const std::shared_ptr<DeviceStream> stream = session->stream();
    stream->Settle();
    // What it times there is what the monitor thread will take.
    return OnComputeThread([&] {
      return Guard([&]() -> absl::Status {
        stream->EnterMonitorThread();
        const absl::Cleanup drain = [&] { DrainQuietly(*stream); };
        PTQWATCH_ASSIGN_OR_RETURN(
            suite, ProbeSuite::Create(std::move(session), options, slices, {}, context, cooldowns));
        return absl::OkStatus();
      });
    });
  };
  const absl::Status status = open();
  if (absl::IsResourceExhausted(status)) {
    return absl::ResourceExhaustedError(
        StrCat("MonitorOptions.max_bytes = ", options.max_bytes, ": ", status));
  }
  PTQWATCH_RETURN_IF_ERROR(status);
  return suite;
}

int TrainingThreads(const MonitorOptions& options) {
  return options.training_threads > 0 ? options.training_threads : at::get_num_threads();
}

WorkBudget::Options BudgetOptions(const MonitorOptions& options, const MonitorDevice& device) {
  const int cores = UsableCores();
  SpareCore::Options spare{.cores_exceed_threads = cores > TrainingThreads(options),
                           .on_training_device = device.shares_gpu};
  if (cores < AllowedCpus()) spare.quota_cores = cores;
  return {.max_overhead = options.max_overhead,
          .fixed_duty_cycle = options.duty_cycle,
          .cores = spare,
          .decay_density = static_cast<double>(options.schedule.decay_density)};
}

absl::Status CheckSameRun(const RunState& state, const RunInfo& run,
                          const MonitorOptions& options) {
  if (state.history.empty() || options.allow_changed_run) return absl::OkStatus();
  const std::string& before = state.history.back().report.fingerprint;
  if (before == run.fingerprint) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat(
      "MonitorOptions.run_dir = '", options.run_dir, "' has run ", state.run_id,
      " with another model, other data, quantizers or seed (fingerprint ", before, ", this is ",
      run.fingerprint,
      "): give this run a directory of its own, or set MonitorOptions.allow_changed_run to go on "
      "in that one"));
}

std::optional<Plan> KeptPlan(const RunState& state, const std::string& fingerprint) {
  std::optional<Plan> kept;
  for (auto it = state.history.rbegin(); it != state.history.rend(); ++it) {
    const Report& report = it->report;
    if (report.fingerprint != fingerprint || !report.plan) break;
    // Finish measures with more than a run's snapshots have time for.
    if (report.trigger == SnapshotTrigger::kFinish) continue;
    if (!kept) kept = report.plan;
    // Reports without curvature do not say on how many sequences it is measured.
    kept->curvature_sequences = report.plan->curvature_sequences;
    if (kept->curvature_every == 0 || kept->curvature_sequences > 0) break;
  }
  return kept;
}

Planner MakePlanner(ProbeSuite& suite, const MonitorOptions& options,
                    const WorkBudget::Options& budget, std::optional<Plan> kept) {
  Planner planner(PlanModelAtCreate(suite, options), kept, /*fixed=*/!options.adapt_plan);
  planner.Fit(budget.fixed_duty_cycle.value_or(budget.cores.cores_exceed_threads ? 1 : 0.1) * 20);
  return planner;
}

absl::StatusOr<std::shared_ptr<Staging>> MakeStaging(ProbeSuite& suite,
                                                     const std::shared_ptr<ByteBudget>& bytes,
                                                     bool beside) {
  ModelSession& session = suite.session();
  OptimizerStaging optimizer;
  if (suite.curvature() != nullptr) {
    PTQWATCH_ASSIGN_OR_RETURN(optimizer,
                              OptimizerStaging::Create(session.subject(), session.live(),
                                                       suite.curvature()->scope(), bytes));
  }
  return std::make_shared<Staging>(session.live(), session.stream(), std::move(optimizer), beside);
}

RunInfo MakeRunInfo(const RunState& state, ModelSession& session, const MonitorOptions& options) {
  return {.run_id = state.run_id,
          .attempt = state.attempt,
          .fingerprint = FingerprintOf(session, options),
          .run_dir = options.run_dir,
          .parameters = session.live().parameters(),
          .covered_parameters = session.plan().covered_parameters,
          .device = session.replica().device().str()};
}

ProbeState ReadProbeState(const RunState& state, const RunInfo& run, ProbeSuite& suite) {
  static const std::vector<int> none;
  return state.ReadProbeState(
      run.fingerprint, SpaceOf(suite.session().replica(),
                               suite.curvature() == nullptr ? none : suite.curvature()->scope()));
}

JudgedHistory Judge(const std::vector<AnalyzedReport>& history) {
  JudgedHistory judged;
  for (const AnalyzedReport& report : history) {
    const VerdictState state = judged.analyzer.Add(report.report).state;
    if (state != VerdictState::kUnknown) judged.state = state;
  }
  return judged;
}

}  // namespace ptqwatch::internal
