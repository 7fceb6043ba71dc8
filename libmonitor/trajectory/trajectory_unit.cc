#include "trajectory/trajectory_unit.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "report/report_source.h"
#include "trajectory/checkpoint_folder.h"
#include "trajectory/checkpoint_list.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kFewestAveraged = 2;

// Whether weights or losses are not finite. Damaged files are DataLoss too, but no finding about a
// model.
bool IsNonFinite(const absl::Status& status, absl::Span<const std::string> folders,
                 CheckpointMeter& meter) {
  return absl::IsDataLoss(status) &&
         std::all_of(folders.begin(), folders.end(),
                     [&](const std::string& folder) { return meter.Facts(folder).ok(); });
}

// nullopt if fewer than two checkpoints of the window are left.
absl::StatusOr<std::optional<AveragingReport>> MeasureWindow(
    const TrajectoryUnit& unit, int64_t average, CheckpointMeter& meter,
    const std::function<void(const MeterProgress&)>& progress, const ExecutionContext& context) {
  std::vector<std::string> folders;
  AveragingReport report;
  report.kind = AveragingKind::kWindow;
  report.window = average;
  for (const Checkpoint& checkpoint : unit.window) {
    // Trainers remove old checkpoints.
    if (!CheckComplete(checkpoint.path, /*trained=*/false).ok()) continue;
    if (folders.empty()) report.first_step = checkpoint.step;
    folders.push_back(checkpoint.path);
  }
  if (folders.size() < kFewestAveraged) return std::nullopt;
  report.snapshots = static_cast<int64_t>(folders.size());
  absl::StatusOr<Report> measured =
      meter.Measure(folders, /*losses_alone=*/true, progress, context);
  if (absl::IsCancelled(measured.status())) return measured.status();
  if (!measured.ok()) {
    report.status = IsNonFinite(measured.status(), folders, meter) ? ProbeStatus::kNonFinite
                                                                   : ProbeStatus::kFailed;
    report.status_detail = StrCat(measured.status());
    return report;
  }
  report.status = measured->probe_status;
  report.status_detail = std::move(measured->probe_status_detail);
  report.loss_nats = measured->probe_loss_nats;
  report.loss_stderr_nats = measured->probe_loss_stderr_nats;
  report.probe_tokens = measured->probe_tokens;
  report.quantization = std::move(measured->quantization);
  return report;
}

}  // namespace

std::vector<TrajectoryUnit> PlanUnits(absl::Span<const Checkpoint> checkpoints,
                                      const LrSchedules& schedules, int64_t average) {
  const std::vector<LrAtCheckpoint> rates = FollowRates(checkpoints, schedules);
  std::vector<TrajectoryUnit> units;
  for (size_t i = 0; i < checkpoints.size(); ++i) {
    TrajectoryUnit unit{.checkpoint = checkpoints[i], .rate = rates[i], .window = {}};
    for (size_t j = i + 1; j > 0 && checkpoints[j - 1].branch == checkpoints[i].branch &&
                           static_cast<int64_t>(unit.window.size()) < average;
         --j) {
      if (!checkpoints[j - 1].path.empty()) unit.window.push_back(checkpoints[j - 1]);
    }
    std::reverse(unit.window.begin(), unit.window.end());
    units.push_back(std::move(unit));
  }
  return units;
}

void FillHeader(const TrajectoryUnit& unit, Report& report) {
  const Checkpoint& checkpoint = unit.checkpoint;
  report.source = kTrajectorySource;
  report.branch.reset();
  if (!checkpoint.branch.empty()) report.branch = checkpoint.branch;
  report.step = checkpoint.step;
  report.tokens = checkpoint.tokens;
  report.learning_rate = unit.rate.learning_rate;
  report.lr_phase = unit.rate.lr.phase;
  report.lr_change_points = unit.rate.lr.Points();
  report.decay_onset_step = unit.rate.lr.decay_onset_step;
}

absl::StatusOr<Report> MeasureUnit(const TrajectoryUnit& unit, int64_t average,
                                   CheckpointMeter& meter,
                                   const std::function<void(const MeterProgress&)>& progress,
                                   const ExecutionContext& context) {
  const Checkpoint& checkpoint = unit.checkpoint;
  const std::vector<std::string> folders =
      checkpoint.soup.empty() ? std::vector{checkpoint.path} : checkpoint.soup;
  absl::StatusOr<Report> measured =
      meter.Measure(folders, /*losses_alone=*/false, progress, context);
  if (IsNonFinite(measured.status(), folders, meter)) {
    Report report;
    report.probe_status = ProbeStatus::kNonFinite;
    report.probe_status_detail = StrCat(measured.status());
    measured = std::move(report);
  }
  if (!measured.ok()) {
    return absl::Status(measured.status().code(),
                        StrCat("checkpoint ", Quoted(checkpoint.name), " (", PlaceOf(checkpoint),
                               "): ", measured.status()));
  }
  FillHeader(unit, *measured);
  measured->snapshot_time_unix_seconds =
      TimeOfWeights(folders.back()).value_or(context.clock->UnixSeconds());
  Stopwatch watch(context.clock);
  auto mean = MeasureWindow(unit, average, meter, progress, context);
  if (!mean.ok()) return mean.status();
  if (*mean) {
    measured->averaging.push_back(**std::move(mean));
    measured->cost["averaging"] = watch.Lap();
  }
  return measured;
}

}  // namespace ptqwatch::internal
