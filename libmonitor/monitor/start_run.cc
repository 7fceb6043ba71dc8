// RunningMonitor::Start (at the end): makes a monitor from its options, step by step.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/usable_cores.h"
#include "capture/layer_selection.h"
#include "curvature/replica_surface.h"
#include "journal/journal_writer.h"
#include "journal/run_endpoint.h"
#include "monitor/compute_thread.h"
#include "monitor/describe.h"
#include "monitor/fingerprint.h"
#include "monitor/run_state.h"
#include "monitor/running_monitor.h"
#include "snapshot/optimizer_staging.h"
#include "staging/slot.h"
#include "staging/worker_link.h"
#include "torch/csrc/autograd/engine.h"

namespace ptqwatch::internal {
namespace {

// Time for Stop at the end of a process in which the monitor still lives.
constexpr std::chrono::seconds kTimeAtEnd{2};
// Time between two writes of the status file.
constexpr std::chrono::milliseconds kStatusInterval{1000};
// Minimum for a curvature batch in which each example has one loss: the change of a single loss
// scatters by many times its mean.
constexpr int64_t kLeastExamples = 64;
constexpr int64_t kMinUnits = 8;

absl::Status CheckOverrides(const ModelSession& session, const MonitorOptions& options) {
  std::vector<std::string> names;
  for (const CoveredLayer& layer : session.plan().layers) names.push_back(layer.name);
  const absl::Status status = CheckOverridesMatch(options.overrides, names);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(StrCat("MonitorOptions.", status));
}

// Opens the subject, and sets up probes and jobs within the context's bytes.
absl::Status OpenSubject(RunCore& core, const MonitorOptions& options, WorkerLink* link) {
  const auto open = [&]() -> absl::Status {
    ModelSessionOptions opened = SessionOptions(options, {}, core.context.host_bytes);
    if (link != nullptr) {
      opened.live = link->LiveTensors();
      if (link->shards() != nullptr) opened.assembled_bytes = link->shards()->assembled_bytes();
      opened.trainer_device = at::Device(link->manifest().device);
      opened.rounding = RoundingType(options.snapshot_dtype);
    }
    PTQWATCH_ASSIGN_OR_RETURN(auto session, ModelSession::Open(*core.subject, opened));
    core.context.bytes = session->budgets().measuring;
    const std::shared_ptr<DeviceStream> stream = session->stream();
    stream->Settle();
    // Autograd makes its threads at the process's first backward, with the scheduling of the thread
    // that asks. They are the trainer's, too.
    if (options.curvature.enabled) {
      torch::autograd::Engine::get_default_engine().initialize_device_threads_pool();
    }
    // On a thread like the monitor thread, so that the times measured here apply to it.
    return OnComputeThread(core.context.threads, [&] {
      return Guard([&]() -> absl::Status {
        stream->EnterMonitorThread();
        const absl::Cleanup drain = [&] { DrainQuietly(*stream); };
        PTQWATCH_RETURN_IF_ERROR(CheckOverrides(*session, options));
        PTQWATCH_ASSIGN_OR_RETURN(
            core.suite, ProbeSuite::Create(std::move(session), options, {}, core.context));
        core.jobs = std::make_unique<Jobs>(JobParts{*core.suite, options, core.trackers});
        return absl::OkStatus();
      });
    });
  };
  const absl::Status status = open();
  // Errors about a GPU's memory name their option.
  if (absl::IsResourceExhausted(status) &&
      status.message().find("MonitorOptions.") == std::string_view::npos) {
    return absl::ResourceExhaustedError(
        StrCat("MonitorOptions.max_bytes = ", core.context.host_bytes->limit(), ": ", status));
  }
  return status;
}

// Reads the optimizer: the subject's, or the one that the trainer's process shares.
OptimizerStaging::Read ReaderOf(const Subject& subject, const WorkerLink* link) {
  return [&subject, link] {
    std::optional<OptimizerView> shared = link == nullptr ? std::nullopt : link->Optimizer();
    return shared ? std::move(shared) : subject.Optimizer();
  };
}

// The part of the optimizer's state that the curvature probe needs, if the budget allows it.
absl::StatusOr<OptimizerStaging> StageOptimizer(const RunCore& core, OptimizerStaging::Read read) {
  ModelSession& session = core.suite->session();
  const WorkShare& share = core.suite->share();
  if (core.suite->curvature() == nullptr || !share.Owns(share.edge)) return OptimizerStaging();
  return OptimizerStaging::Create(std::move(read), session.live(), core.suite->curvature()->scope(),
                                  session.budgets().copies, session.budgets().measuring);
}

// The kind of the optimizer. If it cannot be asked, staging gives the reason.
std::optional<OptimizerKind> KindOf(const OptimizerStaging::Read& read) {
  const auto view = Guard([&]() -> absl::StatusOr<std::optional<OptimizerView>> { return read(); });
  return view.ok() && *view ? std::optional((*view)->kind) : std::nullopt;
}

RunInfo MakeRunInfo(const RunState& state, ModelSession& session, const MonitorOptions& options,
                    std::optional<OptimizerKind> optimizer) {
  return {.run_id = state.run_id,
          .attempt = state.attempt,
          .fingerprint = FingerprintOf(session, options),
          .run_dir = options.run_dir,
          .parameters = session.live().parameters(),
          .covered_parameters = session.plan().covered_parameters,
          .device = session.replica().device().str(),
          .optimizer = optimizer};
}

// FailedPrecondition if the run directory has a run with another fingerprint, unless the options
// allow it.
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

// The plan of the previous attempt, whose series this attempt continues.
std::optional<Plan> KeptPlan(const RunState& state, const std::string& fingerprint,
                             std::optional<int64_t> ranks) {
  std::optional<Plan> kept;
  for (auto it = state.history.rbegin(); it != state.history.rend(); ++it) {
    const Report& report = it->report;
    // Among another number of ranks, this one had other work.
    if (report.fingerprint != fingerprint || !report.plan || report.ranks != ranks) break;
    // Finish measures more than the regular snapshots of a run have time for.
    if (report.trigger == SnapshotTrigger::kFinish) continue;
    if (!kept) kept = report.plan;
    // Reports without curvature do not say how many sequences curvature is measured on.
    kept->curvature_sequences = report.plan->curvature_sequences;
    if (kept->curvature_every == 0 || kept->curvature_sequences > 0) break;
  }
  return kept;
}

WorkBudget::Options BudgetOptions(const RunCore& core, const MonitorOptions& options) {
  const int cores = UsableCores();
  const int threads = core.training_threads + core.context.threads - 1;
  SpareCore::Options spare{.cores_exceed_threads = cores > threads,
                           .on_training_device = core.suite->session().device().shares_gpu};
  if (cores < AllowedCpus()) spare.quota_cores = cores;
  WorkBudget::Options budget{.max_overhead = options.max_overhead,
                             .fixed_duty_cycle = options.duty_cycle,
                             .cores = spare,
                             .decay_density = static_cast<double>(options.schedule.decay_density)};
  if (options.max_snapshot_time.count() > 0) {
    budget.longest_snapshot_seconds =
        std::chrono::duration<double>(options.max_snapshot_time).count();
  }
  return budget;
}

int64_t RoundUp(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// The bounds of a plan for this suite.
PlanRange PlanRangeOf(const ProbeSuite& suite) {
  ModelSession& session = suite.session();
  int64_t inputs = 1;
  for (const CoveredLayer& layer : session.plan().layers) inputs = std::max(inputs, layer.inputs);
  const int64_t units = suite.quantization().probe_batch_units();
  const int64_t tokens = std::max<int64_t>(1, suite.quantization().calibration_batch_tokens());
  const CurvatureProbe* curvature = suite.curvature();
  return {.probe_batches = std::ssize(session.probe()),
          // Enough loss values for a standard error.
          .min_probe_batches = RoundUp(kMinUnits, units),
          .calibration_batches = std::ssize(session.calibration()),
          // Enough tokens for Gram matrices that are not far from full rank.
          .min_calibration_batches = RoundUp(inputs / 2, tokens),
          .curvature_sequences =
              curvature != nullptr && curvature->disabled().empty() ? curvature->sequences() : 0,
          .min_curvature_sequences = session.one_loss_each() ? kLeastExamples : 1,
          .one_loss_each = session.one_loss_each()};
}

// The plan until the first steps have shown the spare capacity of the machine and the time of a
// step.
Planner MakePlanner(ProbeSuite& suite, const MonitorOptions& options,
                    const WorkBudget::Options& budget, std::optional<Plan> kept) {
  Planner planner({PlanRangeOf(suite), SnapshotCosts(suite.Costs())}, kept,
                  /*fixed=*/!options.adapt_plan);
  planner.Fit(budget.fixed_duty_cycle.value_or(budget.cores.cores_exceed_threads ? 1 : 0.1) *
              std::min(20.0, budget.MeanSeconds()));
  return planner;
}

void AnnounceResumption(const RunState& state, const RunCore& core) {
  if (state.attempt <= 1) return;
  const std::string message =
      StrCat("run ", state.run_id, " resumed, attempt ", state.attempt, ", after ",
             state.history.size(), " reports",
             state.unreadable_lines > 0
                 ? StrCat(" (", state.unreadable_lines, " unreadable lines skipped)")
                 : "");
  Log(Severity::kInfo, message);
  core.publisher->PublishEvent(
      {Event::Kind::kResumed, Severity::kInfo, 0, core.clock->UnixSeconds(), message});
}

// Announces batches that were not evaluated and probes that are off from the start, because no
// later event mentions them.
void AnnounceLeftOut(const RunCore& core, int64_t enough_bytes) {
  const std::string& unchecked = core.suite->session().unchecked();
  if (!unchecked.empty()) {
    Log(Severity::kInfo, StrCat("not evaluated by Create for lack of time: ", unchecked));
  }
  for (const std::unique_ptr<Probe>& probe : core.suite->probes()) {
    if (probe->disabled().empty()) continue;
    std::string message = StrCat(probe->name(), " is not measured: ", probe->disabled());
    if (probe->Needs(0).lacking_bytes > 0 && enough_bytes > 0) {
      message += StrCat("; MonitorOptions.max_bytes = ", enough_bytes, " would leave room for it");
    }
    Log(Severity::kWarning, message);
    core.publisher->PublishEvent(
        {Event::Kind::kProbeDisabled, Severity::kWarning, 0, core.clock->UnixSeconds(), message});
  }
}

absl::Status StartExporters(RunCore& core, const MonitorOptions& options, const RunState& state,
                            RunInfo run, pid_t trainer,
                            std::vector<std::unique_ptr<Exporter>>& exporters) {
  if (!run.run_dir.empty()) {
    exporters.insert(exporters.begin(), MakeRunEndpoint(state.lock, kStatusInterval, trainer));
    exporters.insert(exporters.begin(), MakeJournalWriter());
  }
  core.publisher =
      std::make_unique<Publisher>(std::move(run), &core.board, core.clock, std::move(exporters),
                                  [&core](MonitorStatus& status) { core.Complete(status); });
  const size_t required = options.on_failure == OnFailure::kError ? SIZE_MAX : 0;
  return core.publisher->Start(&core.from_outside, required);
}

// The state that the monitor thread starts from: the end of an earlier attempt, or empty.
MonitorThread::Past MakePast(const RunState& state, ProbeSuite& suite, const RunInfo& run) {
  static const std::vector<int> none;
  MonitorThread::Past past{
      .lock = state.lock,
      .sequence = state.sequence,
      .phase = state.lr.phase(),
      .probe_state = state.ReadProbeState(
          run.fingerprint,
          SpaceOf(suite.session().replica(),
                  suite.curvature() == nullptr ? none : suite.curvature()->scope()))};
  for (const AnalyzedReport& report : state.history) {
    const VerdictState verdict = past.analyzer.Add(report.report).state;
    if (verdict != VerdictState::kUnknown) past.announced = verdict;
  }
  return past;
}

absl::StatusOr<std::unique_ptr<Worker>> StartWorker(std::shared_ptr<MonitorThread> thread) {
  Worker::Hooks hooks;
  hooks.thread_init = [thread] { thread->Enter(); };
  hooks.job = [thread] { thread->Run(); };
  hooks.thread_end = [thread] { thread->Leave(); };
  return Worker::Start(std::move(hooks));
}

}  // namespace

absl::Status RunningMonitor::MakeSlot(const MonitorOptions& options) {
  RunCore& core = *core_;
  ModelSession& session = core.suite->session();
  PTQWATCH_ASSIGN_OR_RETURN(OptimizerStaging optimizer,
                            StageOptimizer(core, ReaderOf(*core.subject, link_)));
  if (link_ != nullptr) {
    std::vector<at::Tensor> shared;
    for (const TensorEntry& entry : session.live().entries) shared.push_back(entry.tensor);
    core.slot = std::make_unique<Slot>(&core.page->slot, std::move(shared));
    core.slot->ReadOptimizer(std::move(optimizer), session.stream());
    core.slot->ReadShards(link_->shards());
    return absl::OkStatus();
  }
  core.slot = std::make_unique<Slot>(&core.page->slot, MakeSlotTensors(session.live()));
  filler_ = std::make_unique<SlotFiller>(session.live(), core.slot.get(), session.stream(),
                                         std::move(optimizer), options.copy_beside_training);
  trainer_ = std::make_unique<TrainerSide>(core.page.get(), core.subject.get(), filler_.get(),
                                           TrainerOptions(options), [this] { Wake(); });
  return absl::OkStatus();
}

absl::Status RunningMonitor::Start(const MonitorOptions& options,
                                   std::vector<std::unique_ptr<Exporter>>& exporters) {
  RunCore& core = *core_;
  // First, because nothing may be written before the run's past is known.
  PTQWATCH_ASSIGN_OR_RETURN(const RunState state, ResumeRun(options));
  PTQWATCH_RETURN_IF_ERROR(OpenSubject(core, options, link_));
  PTQWATCH_RETURN_IF_ERROR(MakeSlot(options));
  ModelSession& session = core.suite->session();
  const RunInfo run = MakeRunInfo(state, session, options, KindOf(ReaderOf(*core.subject, link_)));
  PTQWATCH_RETURN_IF_ERROR(CheckSameRun(state, run, options));
  core.board.Resume(state.sequence);
  if (!state.history.empty() && state.history.back().report.fingerprint == run.fingerprint) {
    core.jobs->Resume(state.history.back().report);
  }
  session.ReleaseLiveTensors();
  const std::string& risk = session.device().warning;
  if (!risk.empty()) Log(Severity::kWarning, StrCat("MonitorOptions.monitor_device: ", risk));

  const WorkBudget::Options budget = BudgetOptions(core, options);
  core.budget.emplace(
      budget,
      MakePlanner(*core.suite, options, budget, KeptPlan(state, run.fingerprint, options.ranks)),
      core.clock, core.context.pacer, &core.page->switches, &core.board);
  const MonitorDescription description = DescribeMonitor(
      *core.suite, *core.jobs, link_ == nullptr ? filler_->optimizer() : core.slot->optimizer(),
      core.budget->planner(), options);

  description_ = description.text;
  if (core.slot->sharded()) description_ += link_->shards()->Describe();
  PTQWATCH_RETURN_IF_ERROR(StartExporters(
      core, options, state, run, link_ == nullptr ? getpid() : link_->trainer(), exporters));
  AnnounceResumption(state, core);
  AnnounceLeftOut(core, description.enough_bytes);
  if (!core.page->past_known.load(std::memory_order_relaxed)) {
    core.page->past = state.lr;
    core.page->past_known.store(true, std::memory_order_release);
  }
  if (link_ != nullptr) core.slot->TakeOver();
  core.board.SetHealth(Health::kOk);  // before the thread can set another health
  thread_ = std::make_shared<MonitorThread>(core_, options, MakePast(state, *core.suite, run));
  absl::StatusOr<std::unique_ptr<Worker>> worker = StartWorker(thread_);
  if (!worker.ok()) {
    core.publisher->Stop(std::chrono::seconds(1));
    return worker.status();
  }
  worker_ = *std::move(worker);
  core.control.Open([this] { Wake(); });
  if (link_ != nullptr) ConnectLink();
  at_end_.emplace([this] { Stop(kTimeAtEnd).IgnoreError(); });
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
