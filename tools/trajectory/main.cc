// Measures the checkpoints of a training run. The result is a run directory like that of a live
// run.

#include <algorithm>
#include <csignal>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "absl/strings/str_replace.h"
#include "base/digest.h"
#include "base/passive_waits.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/text_file.h"
#include "base/utf8.h"
#include "compare.h"
#include "decoder_meter.h"
#include "flags.h"
#include "progress.h"
#include "ptqwatch/run_source.h"
#include "stop_on_signal.h"
#include "tables.h"
#include "token_data.h"
#include "trajectory/checkpoint_list.h"
#include "trajectory/follow_trajectory.h"
#include "trajectory/measure_part.h"
#include "trajectory/measure_trajectory.h"
#include "trajectory/report_part.h"
#include "trajectory/trajectory_run.h"
#include "trajectory/trajectory_settings.h"

namespace ptqwatch::tools {
namespace {

using internal::Checkpoint;
using internal::Message;
using internal::StrCat;

constexpr int kFailed = 1;

/// The checkpoints, and the meter and settings that all are measured with.
struct Trajectory {
  std::vector<Checkpoint> checkpoints;
  std::unique_ptr<DecoderMeter> meter;
  internal::ModelFacts facts;
  internal::TrajectorySettings settings;
};

absl::Status About(std::string_view option, const absl::Status& status) {
  return absl::Status(status.code(), StrCat(option, ": ", status));
}

void WarnOf(std::string_view text) { Warn(internal::Printable(text)); }

// Fills in the checkpoints and the facts of the first one.
absl::Status FindCheckpoints(const Flags& flags, internal::CheckpointWatch& watch,
                             const ExecutionContext& context, Trajectory& trajectory) {
  if (flags.follow) {
    Warn("waiting for checkpoints; Ctrl-C ends it");
    PTQWATCH_ASSIGN_OR_RETURN(
        auto found, internal::WaitForCheckpoint(watch, *trajectory.meter, WarnOf, context));
    trajectory.checkpoints = {std::move(found.first)};
    trajectory.facts = std::move(found.second);
    return absl::OkStatus();
  }
  PTQWATCH_ASSIGN_OR_RETURN(internal::CheckpointList list,
                            internal::ListCheckpoints(flags.checkpoints));
  for (const std::string& line : list.left_out) WarnOf(line);
  if (!flags.soup.empty()) {
    absl::StatusOr<Checkpoint> soup = internal::MakeSoup(flags.soup, list.checkpoints);
    if (!soup.ok()) return About("--soup", soup.status());
    list.checkpoints.push_back(*std::move(soup));
  }
  trajectory.checkpoints = std::move(list.checkpoints);
  const Checkpoint& first = trajectory.checkpoints.front();
  PTQWATCH_ASSIGN_OR_RETURN(
      trajectory.facts,
      trajectory.meter->Facts(first.soup.empty() ? first.path : first.soup.front()));
  return absl::OkStatus();
}

// Reads the tasks, and returns what identifies them.
absl::StatusOr<std::string> AddTasks(const Flags& flags, Trajectory& trajectory) {
  if (flags.tasks.empty()) return "none";
  auto items =
      internal::ReadTaskFile(flags.tasks, trajectory.facts.vocabulary, trajectory.facts.context);
  if (!items.ok()) return About("--tasks", items.status());
  const absl::StatusOr<std::string> text = internal::ReadTextFile(flags.tasks);
  if (!text.ok()) return About("--tasks", text.status());
  internal::Digest digest;
  digest.Add(*text);
  const std::string named = StrCat(items->size(), " items, ", digest.Hex());
  trajectory.meter->SetTasks(*std::move(items));
  return named;
}

// Every mistake in the options is found here or in ParseFlags.
absl::StatusOr<Trajectory> Prepare(const Flags& flags, internal::CheckpointWatch& watch,
                                   const ExecutionContext& context) {
  PTQWATCH_ASSIGN_OR_RETURN(const TokenData tokens, ReadTokenData(flags));
  Trajectory trajectory;
  trajectory.meter = MakeMeter(flags, tokens);
  PTQWATCH_RETURN_IF_ERROR(FindCheckpoints(flags, watch, context, trajectory));
  PTQWATCH_RETURN_IF_ERROR(CheckTokenData(flags, tokens, trajectory.facts));
  if (!flags.follow) {  // else each is checked before its turn
    PTQWATCH_RETURN_IF_ERROR(
        internal::CheckSameModel(trajectory.checkpoints, trajectory.facts, *trajectory.meter));
  }
  PTQWATCH_ASSIGN_OR_RETURN(const std::string tasks, AddTasks(flags, trajectory));
  trajectory.settings = internal::MakeSettings(
      trajectory.facts.architecture, tokens.probe, tokens.calibration, tasks, flags.quantizers,
      flags.overrides, MeasurementOf(flags).curvature, flags.noise, flags.seed);
  return trajectory;
}

internal::TrajectoryOptions OptionsOf(const Flags& flags) {
  return {.schedules = flags.schedules, .average = flags.average, .only_merge = flags.merge};
}

// The reports of a run directory with these settings; none if there is no run yet.
std::vector<AnalyzedReport> ReportsIn(const Flags& flags, const std::string& fingerprint) {
  if (flags.run_dir.empty() || !HoldsRun(flags.run_dir)) return {};
  auto reports = OpenRunDirectory(flags.run_dir)->Reports({.without_layers = true});
  if (!reports.ok()) return {};
  std::erase_if(*reports, [&](const AnalyzedReport& analyzed) {
    return analyzed.report.fingerprint != fingerprint;
  });
  return *std::move(reports);
}

// Seconds of a checkpoint by those that are measured; 0 without any.
double MeasuredSeconds(const std::vector<AnalyzedReport>& reports) {
  double seconds = 0;
  for (const AnalyzedReport& analyzed : reports) {
    for (const auto& [part, cost] : analyzed.report.cost) seconds += part == "averaging" ? 0 : cost;
  }
  return reports.empty() ? 0 : seconds / static_cast<double>(reports.size());
}

// The most memory that a unit takes, of its checkpoint, a soup, or the mean of its window.
absl::StatusOr<int64_t> MostBytes(const std::vector<internal::TrajectoryUnit>& units,
                                  internal::CheckpointMeter& meter) {
  std::vector<std::string> alone, soup, window;  // one of each kind stands for all
  for (const internal::TrajectoryUnit& unit : units) {
    if (!unit.checkpoint.soup.empty()) {
      soup = unit.checkpoint.soup;
    } else {
      alone = {unit.checkpoint.path};
    }
    if (unit.window.size() < 2) continue;
    window.clear();
    for (const Checkpoint& checkpoint : unit.window) window.push_back(checkpoint.path);
  }
  int64_t most = 0;
  for (const auto* const folders : {&alone, &soup, &window}) {
    if (folders->empty()) continue;
    PTQWATCH_ASSIGN_OR_RETURN(const int64_t bytes, meter.Bytes(*folders, folders == &window));
    most = std::max(most, bytes);
  }
  return most;
}

int List(const Flags& flags, Trajectory& trajectory) {
  const std::string fingerprint = trajectory.settings.Fingerprint();
  const std::vector<AnalyzedReport> reports = ReportsIn(flags, fingerprint);
  std::vector<internal::TrajectoryUnit> planned =
      internal::PlanUnits(trajectory.checkpoints, flags.schedules, flags.average);
  const absl::StatusOr<int64_t> bytes = MostBytes(planned, *trajectory.meter);
  if (!bytes.ok()) {
    Warn(Message(bytes.status()));
    return kFailed;
  }
  std::set<std::pair<std::string, int64_t>> measured;
  for (const AnalyzedReport& analyzed : reports) {
    measured.emplace(analyzed.report.branch.value_or(""), analyzed.report.step);
  }
  const auto parts = internal::ReadParts(flags.run_dir);
  std::vector<ListedUnit> units;
  for (internal::TrajectoryUnit& unit : planned) {
    const std::pair place(unit.checkpoint.branch, unit.checkpoint.step);
    const bool waits =
        parts.ok() && parts->contains(place) && parts->at(place).report.fingerprint == fingerprint;
    const char* const state = measured.contains(place) ? "measured" : waits ? "part" : "-";
    units.push_back({.unit = std::move(unit), .state = state});
  }
  std::cout << UnitTable(units, MeasuredSeconds(reports), *bytes) << std::flush;
  return 0;
}

int ExitCode(const absl::Status& status, const StopOnSignal& stop, const Flags& flags) {
  if (status.ok()) return 0;
  if (stop.received() && absl::IsCancelled(status)) {
    if (flags.follow) return 0;
    Warn(flags.compare ? "stopped" : "stopped; the same command goes on from here");
    return stop.exit_code();
  }
  std::string text = internal::Printable(Message(status));
  if (absl::IsResourceExhausted(status)) {
    absl::StrReplaceAll({{"max_bytes", "--max-bytes"}}, &text);  // the library's name of the option
  }
  Warn(text);
  return kFailed;
}

internal::TrajectoryListener ShowOn(Progress& progress) {
  return {.begin = [&](const internal::TrajectoryUnit& unit, int64_t number,
                       int64_t of) { progress.Begin(unit, number, of); },
          .progress = [&](const internal::MeterProgress& now) { progress.Note(now); },
          .report = [&](const AnalyzedReport&) { progress.End(); },
          .notice = WarnOf};
}

int MeasureOne(const Flags& flags, Trajectory& trajectory, const StopOnSignal& stop,
               const ExecutionContext& context) {
  if (*flags.only >= std::ssize(trajectory.checkpoints)) {
    return FailWithUsage(StrCat("--only: ", *flags.only, "; --list has units 0 to ",
                                trajectory.checkpoints.size() - 1));
  }
  Progress progress(0, context.clock);
  const absl::StatusOr<bool> measured =
      internal::MeasurePart(flags.run_dir, *flags.only, trajectory.checkpoints, trajectory.settings,
                            OptionsOf(flags), *trajectory.meter, ShowOn(progress), context);
  if (measured.ok() && !*measured) Warn(StrCat("unit ", *flags.only, " is measured already"));
  return ExitCode(measured.status(), stop, flags);
}

int MeasureAll(const Flags& flags, Trajectory& trajectory, internal::CheckpointWatch& watch,
               const StopOnSignal& stop, const ExecutionContext& context) {
  const auto run = internal::TrajectoryRun::Open(flags.run_dir, trajectory.settings,
                                                 trajectory.facts, context.clock);
  if (!run.ok()) return FailWithUsage(StrCat("--run-dir: ", run.status()));
  Progress progress(MeasuredSeconds((*run)->reports()), context.clock);
  const absl::Status status =
      flags.follow
          ? internal::FollowTrajectory(watch, flags.until, trajectory.facts, OptionsOf(flags),
                                       *trajectory.meter, **run, ShowOn(progress), context)
          : internal::MeasureTrajectory(trajectory.checkpoints, trajectory.facts, OptionsOf(flags),
                                        *trajectory.meter, **run, ShowOn(progress), context);
  (*run)->End();
  if (!(*run)->reports().empty()) {
    std::cout << ResultTable((*run)->reports()) << std::flush;
  }
  return ExitCode(status, stop, flags);
}

int CompareTwo(const Flags& flags, const StopOnSignal& stop, const ExecutionContext& context) {
  absl::StatusOr<Comparison> comparison = Comparison::Prepare(flags, WarnOf);
  if (!comparison.ok()) return FailWithUsage(internal::Printable(Message(comparison.status())));
  Progress progress(0, context.clock);
  const absl::StatusOr<std::string> text = comparison->Measure(ShowOn(progress), context);
  if (text.ok()) std::cout << *text << std::flush;
  return ExitCode(text.status(), stop, flags);
}

int Run(const Flags& flags) {
  ExecutionContext context;
  context.threads = flags.threads;
  context.seeds = SeedSource(flags.seed);
  const StopOnSignal stop(context.cancel);  // before LibTorch's threads
  at::set_num_threads(flags.threads);
  if (flags.compare) return CompareTwo(flags, stop, context);
  internal::CheckpointWatch watch(flags.checkpoints, WarnOf);
  absl::StatusOr<Trajectory> trajectory = Prepare(flags, watch, context);
  if (!trajectory.ok()) {
    if (stop.received()) return ExitCode(trajectory.status(), stop, flags);
    return FailWithUsage(internal::Printable(Message(trajectory.status())));
  }
  if (flags.list) return List(flags, *trajectory);
  if (flags.only) return MeasureOne(flags, *trajectory, stop, context);
  return MeasureAll(flags, *trajectory, watch, stop, context);
}

}  // namespace
}  // namespace ptqwatch::tools

int main(int argc, char** argv) {
  ptqwatch::internal::WaitPassively(argv);
  std::signal(SIGPIPE, SIG_IGN);  // measuring goes on if no process reads the progress
  ptqwatch::tools::Flags flags;
  if (const auto exit_code = ptqwatch::tools::ParseFlags(argc, argv, &flags)) return *exit_code;
  return ptqwatch::tools::Run(flags);
}
