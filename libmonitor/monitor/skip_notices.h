#ifndef PTQWATCH_MONITOR_SKIP_NOTICES_H_
#define PTQWATCH_MONITOR_SKIP_NOTICES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "ptqwatch/options.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// Tells which due snapshots were not taken since it was last asked, and why. One thread's.
class SkipNotices {
 public:
  struct Notice {
    std::string message;
    bool first = false;  ///< of its kind: worth a line in the log
  };

  explicit SkipNotices(const ScheduleOptions& schedule) : schedule_(schedule) {}

  /// Those for which the slot was not free, or that could not be copied. The first time it says
  /// with which schedule there would be time for all: a snapshot takes `work_seconds`, and one is
  /// due every `interval_seconds`.
  std::optional<Notice> Skipped(const MonitorStatus& status, double work_seconds,
                                double interval_seconds);
  /// The first that was due while the monitor rested, as it does with or without a `spare` core to
  /// work no more than `share` of the time.
  std::optional<Notice> Rested(const MonitorStatus& status, bool spare, double share);

 private:
  const ScheduleOptions schedule_;
  int64_t skips_ = 0;
  int64_t rests_ = 0;
  bool explained_ = false;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_SKIP_NOTICES_H_
