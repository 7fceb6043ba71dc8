#include "notices/skip_notices.h"

#include <cmath>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

int64_t Count(const MonitorStatus& status, SnapshotResult result) {
  return status.snapshots[static_cast<size_t>(result)];
}

// The setting with which all snapshots of `seconds` each would be measured. Empty if none helps.
std::string ScheduleThatFits(const ScheduleOptions& schedule, const MonitorStatus& status,
                             double seconds) {
  if (status.every > 0 && status.seconds_a_step > 0) {
    const auto every = static_cast<int64_t>(std::ceil(seconds / status.seconds_a_step));
    return every > status.every ? StrCat("every = ", every) : "";
  }
  if (schedule.every_seconds <= 0 || seconds <= schedule.every_seconds) return "";
  return StrFormat("every_seconds = %.0f", std::ceil(seconds));
}

// Due snapshots that were not taken.
int64_t Skips(const MonitorStatus& status) {
  return Count(status, SnapshotResult::kSkippedBusy) +
         Count(status, SnapshotResult::kSkippedMismatch) + Count(status, SnapshotResult::kFailed);
}

}  // namespace

SkipNotices::SkipNotices(const ScheduleOptions& schedule, const MonitorStatus& so_far)
    : schedule_(schedule),
      skips_(Skips(so_far)),
      rests_(Count(so_far, SnapshotResult::kSkippedResting)) {}

std::optional<SkipNotices::Notice> SkipNotices::Skipped(const MonitorStatus& status,
                                                        double work_seconds,
                                                        double interval_seconds) {
  const int64_t busy = Count(status, SnapshotResult::kSkippedBusy);
  const int64_t skips = Skips(status);
  if (skips <= skips_) return std::nullopt;
  Notice notice{.message = StrCat(skips - skips_, " due snapshots were not taken")};
  skips_ = skips;
  if (busy == 0 || explained_) return notice;
  explained_ = true;
  notice.first = true;
  notice.message += StrFormat(
      ": an earlier one was still being measured, which takes about %.2g s, and one is due every "
      "%.2g s",
      work_seconds, interval_seconds);
  if (const std::string fits = ScheduleThatFits(schedule_, status, work_seconds); !fits.empty()) {
    notice.message += StrCat("; MonitorOptions.schedule.", fits, " would leave time for all");
  }
  return notice;
}

std::optional<SkipNotices::Notice> SkipNotices::Rested(const MonitorStatus& status, bool spare,
                                                       double share) {
  const int64_t rests = Count(status, SnapshotResult::kSkippedResting);
  if (rests <= rests_) return std::nullopt;
  const bool first = rests_ == 0;
  rests_ = rests;
  if (!first) return std::nullopt;
  return Notice{
      .message = StrFormat(
          "%s, so the monitor works %.1f %% of the time at most "
          "(MonitorOptions.max_overhead); snapshots that are due while it rests are "
          "skipped",
          spare ? "steps of training take longer while the monitor works" : "no core is spare",
          100 * share),
      .first = true};
}

}  // namespace ptqwatch::internal
