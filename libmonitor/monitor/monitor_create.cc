#include <algorithm>
#include <cstdlib>
#include <optional>
#include <random>
#include <utility>

#include "ATen/Parallel.h"
#include "absl/strings/str_format.h"
#include "base/strings.h"
#include "base/usable_cores.h"
#include "curvature/replica_surface.h"
#include "journal/journal_writer.h"
#include "journal/run_directory.h"
#include "monitor/monitor_impl.h"
#include "probes/probe_state_file.h"

namespace ptqwatch {
namespace {

using internal::MonitorCore;
using internal::StrCat;

bool Disabled() {
  const char* value = std::getenv("PTQWATCH_DISABLE");
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

std::string NewRunId(double unix_seconds) {
  // std::random_device: nothing of the trainer's generators is touched.
  std::random_device random;
  return absl::StrFormat("%d-%08x", static_cast<int64_t>(unix_seconds),
                         static_cast<uint32_t>(random()));
}

// With a spare core the monitor may use it all; without one, every slice it takes stalls the
// trainer's OpenMP barriers.
constexpr double kDutyCycleWithoutSpareCore = 0.05;

double ChooseDutyCycle(const MonitorOptions& options, std::string& why) {
  if (options.duty_cycle) {
    why = "as asked for";
    return *options.duty_cycle;
  }
  const int threads =
      options.training_threads > 0 ? options.training_threads : at::get_num_threads();
  const int cores = internal::UsableCores();
  why = StrCat(cores, " usable cores, ", threads, " training threads");
  return cores > threads ? 1.0 : kDutyCycleWithoutSpareCore;
}

/// The state that an earlier attempt left, or nothing; what is wrong with it is logged.
std::optional<internal::ProbeStateFile> OpenProbeState(const std::string& run_dir) {
  absl::StatusOr<internal::ProbeStateFile> file = internal::ProbeStateFile::Open(run_dir);
  if (file.ok()) return *std::move(file);
  if (!absl::IsNotFound(file.status())) {
    internal::Log(Severity::kWarning, StrCat("cold start: ", std::string(file.status().message())));
  }
  return std::nullopt;
}

/// The probes go on from `kept` where it is of this run and measured the same.
void RestoreProbeState(const internal::ProbeStateFile& kept, const RunInfo& run,
                       MonitorCore& core) {
  std::string problem;
  if (kept.run_id() != run.run_id) {
    problem = StrCat("it is of run ", kept.run_id(), ", this is ", run.run_id);
  } else {
    core.sequence = std::max(core.sequence, kept.sequence());
    if (kept.fingerprint() != run.fingerprint) {
      problem = "model, data or options have changed since (the fingerprint is another one)";
    } else {
      const internal::CurvatureProbe* curvature = core.measurement->curvature();
      static const std::vector<int> none;
      absl::StatusOr<internal::ProbeState> state = kept.Read(internal::SpaceOf(
          core.measurement->replica(), curvature == nullptr ? none : curvature->scope()));
      if (state.ok()) {
        core.probe_state = *std::move(state);
        return;
      }
      problem = std::string(state.status().message());
    }
  }
  internal::Log(Severity::kWarning,
                StrCat("cold start: the state in '", run.run_dir, "' is not used: ", problem));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Monitor>> Monitor::Create(
    std::unique_ptr<Subject> subject, MonitorOptions options,
    std::vector<std::unique_ptr<Exporter>> exporters) {
  auto impl = std::make_unique<Impl>();
  if (Disabled()) return std::unique_ptr<Monitor>(new Monitor(std::move(impl)));
  if (subject == nullptr) return absl::InvalidArgumentError("the subject is null");
  for (const auto& exporter : exporters) {
    if (exporter == nullptr) return absl::InvalidArgumentError("an exporter is null");
  }
  if (absl::Status status = Validate(options); !status.ok()) return status;

  try {
    // First of all: nothing may be written before the past of the run is known.
    internal::RunHistory history;
    std::optional<internal::ProbeStateFile> kept;
    if (!options.run_dir.empty()) {
      absl::StatusOr<internal::RunHistory> opened = internal::OpenRunDirectory(options.run_dir);
      if (!opened.ok()) return opened.status();
      history = *std::move(opened);
      kept = OpenProbeState(options.run_dir);
    }

    auto core = std::make_shared<MonitorCore>(std::move(options), std::move(subject));
    absl::StatusOr<std::unique_ptr<internal::Measurement>> measurement =
        internal::Measurement::Create(*core->subject, core->options);
    if (!measurement.ok()) return measurement.status();
    core->measurement = *std::move(measurement);
    internal::ModelSession& session = core->measurement->session();
    core->stream = session.stream();
    core->slice = std::make_unique<internal::SliceProbe>(
        &core->board->slices(), core->measurement.get(), core->options.run_dir);
    internal::OptimizerStaging optimizer;
    if (core->measurement->curvature() != nullptr) {
      absl::StatusOr<internal::OptimizerStaging> staging = internal::OptimizerStaging::Create(
          *core->subject, session.live(), core->measurement->curvature()->scope());
      if (!staging.ok()) return staging.status();
      optimizer = *std::move(staging);
    }
    core->staging =
        std::make_unique<internal::Staging>(session.live(), core->stream, std::move(optimizer));

    std::string why;
    core->duty_cycle = ChooseDutyCycle(core->options, why);
    core->board->SetDutyCycle(core->duty_cycle);
    core->context.cancel = core->cancel;
    core->context.clock = core->options.clock;
    core->context.pacer = Pacer(core->duty_cycle, core->options.clock);
    core->context.seeds = SeedSource(core->options.seed);

    RunInfo run;
    run.run_id = !core->options.run_id.empty() ? core->options.run_id
                 : !history.run_id.empty()     ? history.run_id
                                               : NewRunId(core->options.clock->UnixSeconds());
    run.attempt = history.attempts + 1;
    run.fingerprint = core->measurement->fingerprint();
    run.run_dir = core->options.run_dir;
    run.parameters = session.live().parameters();
    run.covered_parameters = core->measurement->plan().covered_parameters;
    run.device = core->measurement->replica().device().str();
    session.ReleaseLiveTensors();
    core->sequence = history.last_sequence;
    if (kept) RestoreProbeState(*kept, run, *core);
    for (const AnalyzedReport& report : history.reports) {
      core->analyzer.Add(report.report);
      // The corners and the reports themselves are all the schedule that is needed to go on from.
      for (const LrChangePoint& point : report.report.lr_change_points) {
        impl->lr.Step(point.step, point.learning_rate, std::nullopt);
      }
      impl->lr.Step(report.report.step, report.report.learning_rate, std::nullopt);
      core->last_phase = report.report.lr_phase;
    }
    if (!history.reports.empty()) {
      const Report& newest = history.reports.back().report;
      impl->lr.Restore(newest.lr_phase, newest.decay_onset_step);
    }
    core->description = StrCat(core->measurement->Describe(),
                               "staging: ", static_cast<double>(core->staging->bytes()) / 1e6,
                               " MB; duty cycle ", core->duty_cycle, " (", why, ")\n");
    if (const auto& staged = core->staging->optimizer(); !staged.description().empty()) {
      core->description += StrCat("optimizer: ", staged.description());
      if (staged.bytes() > 0) {
        core->description += StrCat(": ", static_cast<double>(staged.bytes()) / 1e6,
                                    " MB staged and as much while measuring");
      }
      core->description += "\n";
    }

    if (!run.run_dir.empty()) {
      exporters.insert(exporters.begin(), internal::MakeJournalWriter());
    }
    core->publisher = std::make_unique<internal::Publisher>(run, core->board, core->options.clock,
                                                            std::move(exporters));
    if (absl::Status status = core->publisher->Start(&core->inbox); !status.ok()) return status;
    if (run.attempt > 1) {
      const std::string message =
          StrCat("run ", run.run_id, " resumed, attempt ", run.attempt, ", after ",
                 history.reports.size(), " reports",
                 history.unreadable_lines > 0
                     ? StrCat(" (", history.unreadable_lines, " unreadable lines skipped)")
                     : "");
      internal::Log(Severity::kInfo, message);
      core->publisher->PublishEvent(
          {Event::Kind::kResumed, Severity::kInfo, 0, core->options.clock->UnixSeconds(), message});
    }

    internal::Worker::Hooks hooks;
    hooks.thread_init = [core] {
      internal::InitMonitorThread();
      core->stream->EnterMonitorThread();
    };
    hooks.job = [core] { core->RunPending(); };
    absl::StatusOr<std::unique_ptr<internal::Worker>> worker =
        internal::Worker::Start(std::move(hooks));
    if (!worker.ok()) {
      core->publisher->Stop(std::chrono::seconds(1));
      return worker.status();
    }
    core->board->SetHealth(Health::kOk);
    impl->core = std::move(core);
    impl->worker = *std::move(worker);
    return std::unique_ptr<Monitor>(new Monitor(std::move(impl)));
  } catch (const c10::Error& error) {
    return absl::InternalError(StrCat("LibTorch: ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  } catch (...) {
    return absl::InternalError("unknown exception");
  }
}

}  // namespace ptqwatch
