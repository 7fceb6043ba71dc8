#ifndef PTQWATCH_NOTICES_SKIP_NOTICES_H_
#define PTQWATCH_NOTICES_SKIP_NOTICES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "ptqwatch/options.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// Describes due snapshots that were not taken since the last call, and the reasons. Not
/// thread-safe.
class SkipNotices {
 public:
  struct Notice {
    std::string message;
    bool first = false;  ///< of its kind: worth a log line
  };

  /// Skips that `so_far` counts are not announced.
  explicit SkipNotices(const ScheduleOptions& schedule, const MonitorStatus& so_far = {});

  /// Snapshots skipped because the slot was not free, or because the copy failed. The first notice
  /// about a busy slot names a schedule with time for every snapshot, given that a snapshot takes
  /// `work_seconds` and one is due every `interval_seconds`.
  std::optional<Notice> Skipped(const MonitorStatus& status, double work_seconds,
                                double interval_seconds);
  /// The first snapshot skipped because the monitor rested. `share` is the largest share of its
  /// time that the monitor works, with or without a `spare` core.
  std::optional<Notice> Rested(const MonitorStatus& status, bool spare, double share);

 private:
  const ScheduleOptions schedule_;
  int64_t skips_;
  int64_t rests_;
  bool explained_ = false;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_NOTICES_SKIP_NOTICES_H_
