#include "trajectory/measure_part.h"

#include <errno.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "journal/run_history.h"
#include "trajectory/checkpoint_list.h"
#include "trajectory/report_part.h"

namespace ptqwatch::internal {
namespace {

bool IsOf(const Report& report, const Checkpoint& checkpoint) {
  return report.branch.value_or("") == checkpoint.branch && report.step == checkpoint.step;
}

// An existing directory keeps its mode.
absl::Status MakeRunDirectory(const std::string& run_dir) {
  std::error_code error;
  std::filesystem::create_directories(
      std::filesystem::absolute(run_dir, error).lexically_normal().parent_path(), error);
  if (mkdir(run_dir.c_str(), S_IRWXU) == 0 || errno == EEXIST) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, StrCat("cannot create run directory ", Quoted(run_dir)));
}

absl::StatusOr<bool> IsThere(const std::string& run_dir, const std::string& path,
                             const Checkpoint& checkpoint, const std::string& fingerprint) {
  PTQWATCH_ASSIGN_OR_RETURN(const RunHistory history, ReadRunHistory(run_dir));
  if (std::any_of(history.reports.begin(), history.reports.end(),
                  [&](const AnalyzedReport& added) { return IsOf(added.report, checkpoint); })) {
    return true;
  }
  const absl::StatusOr<ReportPart> part = ReadPart(path);
  if (absl::IsNotFound(part.status())) return false;
  PTQWATCH_RETURN_IF_ERROR(part.status());
  if (part->report.fingerprint != fingerprint) return false;
  if (IsOf(part->report, checkpoint)) return true;
  return absl::FailedPreconditionError(
      StrCat(Quoted(path), " has step ", part->report.step, " in place of ", PlaceOf(checkpoint),
             ": the list of checkpoints has changed; merge the parts first"));
}

}  // namespace

absl::StatusOr<bool> MeasurePart(const std::string& run_dir, int64_t number,
                                 absl::Span<const Checkpoint> checkpoints,
                                 const TrajectorySettings& settings,
                                 const TrajectoryOptions& options, CheckpointMeter& meter,
                                 const TrajectoryListener& listener,
                                 const ExecutionContext& context) {
  PTQWATCH_RETURN_IF_ERROR(MakeRunDirectory(run_dir));
  PTQWATCH_RETURN_IF_ERROR(KeepSettings(run_dir, settings));
  const std::string path = PartPath(run_dir, number);
  const std::string fingerprint = settings.Fingerprint();
  const TrajectoryUnit unit =
      PlanUnits(checkpoints, options.schedules, options.average)[static_cast<size_t>(number)];
  PTQWATCH_ASSIGN_OR_RETURN(const bool there, IsThere(run_dir, path, unit.checkpoint, fingerprint));
  if (there) return false;
  if (listener.begin) listener.begin(unit, 1, 1);
  PTQWATCH_ASSIGN_OR_RETURN(Report report,
                            MeasureUnit(unit, options.average, meter, listener.progress, context));
  report.fingerprint = fingerprint;
  PTQWATCH_RETURN_IF_ERROR(WritePart(path, report));
  if (listener.report) listener.report({.report = std::move(report), .verdict = {}});
  return true;
}

}  // namespace ptqwatch::internal
