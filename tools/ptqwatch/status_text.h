#ifndef PTQWATCH_TOOLS_PTQWATCH_STATUS_TEXT_H_
#define PTQWATCH_TOOLS_PTQWATCH_STATUS_TEXT_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "ptqwatch/event.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// Steps per second over the last ten observations. Not thread-safe.
class StepRate {
 public:
  void Add(std::chrono::nanoseconds now, int64_t steps_total);
  /// Absent before the second observation; a decreasing count starts over.
  std::optional<double> PerSecond() const;

 private:
  struct Observation {
    std::chrono::nanoseconds time;
    int64_t steps;
  };
  std::deque<Observation> observations_;
};

/// "gptq4: 45 of 444 points measured": the progress of a slice.
std::string SliceText(const SliceStatus& slice);
/// "2 from step 8000: 450 of 3000 steps simulated": the progress of a shadow cooldown.
std::string CooldownText(const CooldownStatus& cooldown);

/// "1.8% (1.1 to 2.6%, 95%) of 2% allowed", "not measured yet (3 comparisons) of 2% allowed": the
/// training time lost. Empty if nothing is known.
std::string OverheadText(const MonitorStatus& status);

/// "differ since step 200, last compared at step 300, rank 2 unlike most, first in 'head'", "equal
/// at step 300". Empty if no ranks have been compared.
std::string ReplicasText(const ReplicaStatus& replicas);

/// "-- step 1200, warning, snapshot_skipped: MESSAGE".
std::string EventText(const Event& event);

/// One line: step, speed, age of the newest report, health, whether replicas differ, whether a
/// snapshot is being measured, skipped snapshots. An unknown age is omitted.
std::string StatusLine(const MonitorStatus& status, std::optional<double> steps_per_second,
                       std::optional<double> report_age_seconds);

/// The facts and counters of a run as lines `name value`: the important ones in words, then every
/// other member (status_fields.h) that differs from its default. Times are shown as ages at
/// `now_unix_seconds`.
std::string StatusBlock(const RunStatus& status, double now_unix_seconds);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_STATUS_TEXT_H_
