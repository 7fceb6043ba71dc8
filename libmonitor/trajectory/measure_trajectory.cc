#include "trajectory/measure_trajectory.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "trajectory/checkpoint_folder.h"
#include "trajectory/checkpoint_list.h"

namespace ptqwatch::internal {
namespace {

std::vector<std::string> FoldersOf(const Checkpoint& checkpoint) {
  return checkpoint.soup.empty() ? std::vector{checkpoint.path} : checkpoint.soup;
}

// The checkpoints, and removed ones that have a report.
std::vector<Checkpoint> WithMeasured(absl::Span<const Checkpoint> checkpoints,
                                     const TrajectoryRun& run) {
  std::vector<Checkpoint> all(checkpoints.begin(), checkpoints.end());
  for (const AnalyzedReport& analyzed : run.reports()) {
    const Report& report = analyzed.report;
    const std::string branch = report.branch.value_or("");
    const bool listed =
        std::any_of(checkpoints.begin(), checkpoints.end(), [&](const Checkpoint& checkpoint) {
          return checkpoint.branch == branch && checkpoint.step == report.step;
        });
    if (listed) continue;
    Checkpoint measured{.branch = branch, .step = report.step, .tokens = report.tokens};
    measured.rates = report.lr_change_points;
    if (report.learning_rate) measured.rates.push_back({report.step, *report.learning_rate});
    all.push_back(std::move(measured));
  }
  std::stable_sort(all.begin(), all.end(), [](const Checkpoint& a, const Checkpoint& b) {
    return std::tie(a.branch, a.step) < std::tie(b.branch, b.step);
  });
  return all;
}

void Tell(const TrajectoryListener& listener, std::string_view text) {
  if (listener.notice) listener.notice(text);
}

// The part of a unit, if there is a usable one.
absl::StatusOr<std::optional<ReportPart>> TakePart(const TrajectoryUnit& unit, ReportParts& parts,
                                                   const TrajectoryRun& run,
                                                   const TrajectoryListener& listener) {
  const ReportParts::key_type place(unit.checkpoint.branch, unit.checkpoint.step);
  auto part = parts.extract(place);
  if (part.empty()) return std::nullopt;
  if (part.mapped().report.fingerprint == run.fingerprint()) return std::move(part.mapped());
  Tell(listener, StrCat(Quoted(part.mapped().path),
                        " is not used: it was measured with other settings (fingerprint ",
                        part.mapped().report.fingerprint, ", this is ", run.fingerprint(), ")"));
  return std::nullopt;
}

bool IsComplete(const Checkpoint& checkpoint) {
  const std::vector<std::string> folders = FoldersOf(checkpoint);
  return std::all_of(folders.begin(), folders.end(), [](const std::string& folder) {
    return CheckComplete(folder, /*trained=*/false).ok();
  });
}

// Checks the models of all units. With `skip_removed`, drops units that are removed meanwhile, or
// whose files are not written to their end, such as a copy over a network that has stalled.
absl::Status CheckUnits(std::vector<TrajectoryUnit>& units, const ModelFacts& facts,
                        bool skip_removed, CheckpointMeter& meter,
                        const TrajectoryListener& listener) {
  while (true) {
    std::vector<Checkpoint> checkpoints;
    for (const TrajectoryUnit& unit : units) checkpoints.push_back(unit.checkpoint);
    absl::Status same = CheckSameModel(checkpoints, facts, meter);
    if (same.ok() || !skip_removed) return same;
    const size_t dropped = std::erase_if(units, [&](const TrajectoryUnit& unit) {
      if (!IsComplete(unit.checkpoint)) return true;
      const absl::Status opened = meter.Facts(unit.checkpoint.path).status();
      if (!absl::IsDataLoss(opened)) return false;
      Tell(listener, StrCat(PlaceOf(unit.checkpoint), " is left out for now: ", opened));
      return true;
    });
    if (dropped == 0) return same;
  }
}

// Nothing tells two checkpoints without a step apart, and neither has a place in a series.
absl::Status CheckUnknownStep(absl::Span<const Checkpoint> checkpoints, const TrajectoryRun& run) {
  const auto unknown = [](int64_t step) { return step == kUnknownStep; };
  if (run.reports().empty()) return absl::OkStatus();
  const bool has = std::any_of(run.reports().begin(), run.reports().end(),
                               [&](const auto& one) { return unknown(one.report.step); });
  const bool adds = std::any_of(checkpoints.begin(), checkpoints.end(),
                                [&](const Checkpoint& one) { return unknown(one.step); });
  if (!has && !adds) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("run directory ", Quoted(run.run_dir()),
             " has reports, and a checkpoint whose step is unknown needs one of its own"));
}

}  // namespace

absl::Status CheckSameModel(absl::Span<const Checkpoint> checkpoints, const ModelFacts& facts,
                            CheckpointMeter& meter) {
  for (const Checkpoint& checkpoint : checkpoints) {
    for (const std::string& folder : FoldersOf(checkpoint)) {
      PTQWATCH_ASSIGN_OR_RETURN(const ModelFacts own, meter.Facts(folder));
      if (own.architecture == facts.architecture) continue;
      return absl::InvalidArgumentError(StrCat("checkpoint ", Quoted(folder),
                                               " is of another model: ", own.architecture,
                                               "; the first one is ", facts.architecture));
    }
  }
  return absl::OkStatus();
}

absl::Status MeasureTrajectory(absl::Span<const Checkpoint> checkpoints, const ModelFacts& facts,
                               const TrajectoryOptions& options, CheckpointMeter& meter,
                               TrajectoryRun& run, const TrajectoryListener& listener,
                               const ExecutionContext& context) {
  PTQWATCH_RETURN_IF_ERROR(CheckUnknownStep(checkpoints, run));
  PTQWATCH_ASSIGN_OR_RETURN(ReportParts parts, ReadParts(run.run_dir()));
  std::vector<TrajectoryUnit> units =
      PlanUnits(WithMeasured(checkpoints, run), options.schedules, options.average);
  std::erase_if(units, [&](const TrajectoryUnit& unit) {
    const Checkpoint& checkpoint = unit.checkpoint;
    if (!run.Has(checkpoint.branch, checkpoint.step)) {
      return options.skip_removed && !IsComplete(checkpoint);
    }
    // A process was killed between adding a part to the journal and removing it.
    const auto part = parts.find({checkpoint.branch, checkpoint.step});
    if (part != parts.end()) unlink(part->second.path.c_str());
    return true;
  });
  PTQWATCH_RETURN_IF_ERROR(CheckUnits(units, facts, options.skip_removed, meter, listener));

  const auto progress = [&](const MeterProgress& now) {
    run.Alive();
    if (listener.progress) listener.progress(now);
  };
  for (size_t i = 0; i < units.size(); ++i) {
    const TrajectoryUnit& unit = units[i];
    PTQWATCH_ASSIGN_OR_RETURN(std::optional<ReportPart> part, TakePart(unit, parts, run, listener));
    if (!part && options.only_merge) continue;
    run.Begin(unit);
    absl::StatusOr<Report> report = absl::UnknownError("");
    if (part) {
      report = std::move(part->report);
      FillHeader(unit, *report);
    } else {
      if (listener.begin) {
        listener.begin(unit, static_cast<int64_t>(i) + 1, static_cast<int64_t>(units.size()));
      }
      report = MeasureUnit(unit, options.average, meter, progress, context);
    }
    if (!report.ok()) {
      run.Idle();
      const bool removed = options.skip_removed && !absl::IsCancelled(report.status()) &&
                           (absl::IsDataLoss(report.status()) || !IsComplete(unit.checkpoint));
      if (!removed) return report.status();
      Tell(listener, StrCat(PlaceOf(unit.checkpoint), " is left out: ", report.status()));
      continue;
    }
    PTQWATCH_ASSIGN_OR_RETURN(const AnalyzedReport added, run.Add(*std::move(report)));
    if (part) unlink(part->path.c_str());
    if (listener.report) listener.report(added);
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
