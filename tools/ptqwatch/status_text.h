#ifndef PTQWATCH_TOOLS_PTQWATCH_STATUS_TEXT_H_
#define PTQWATCH_TOOLS_PTQWATCH_STATUS_TEXT_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ptqwatch/report.h"
#include "ptqwatch/v1/monitor_service.pb.h"
#include "report_table.h"

namespace ptqwatch::internal {

/// Steps per second over the last ten observations. Not thread-safe.
class StepRate {
 public:
  void Add(std::chrono::nanoseconds now, int64_t steps_total);
  /// Absent until two observations are there; also after the count went back.
  std::optional<double> PerSecond() const;

 private:
  struct Observation {
    std::chrono::nanoseconds time;
    int64_t steps;
  };
  std::deque<Observation> observations_;
};

/// "ok", "degraded", ...
std::string_view HealthText(v1::Health health);

/// "gptq4, 45 of 444 points": how far a slice is.
std::string SliceText(const v1::SliceStatus& slice);

/// One line: step now, speed, age of the newest report, health, whether a snapshot is being
/// measured, skipped snapshots. An age that is not known is left out.
std::string StatusLine(const v1::GetStatusResponse& status, std::optional<double> steps_per_second,
                       std::optional<double> report_age_seconds);

/// The facts and counters of a run, one `name value` a line. Times are shown as ages at
/// `now_unix_seconds`.
std::string StatusBlock(const v1::GetStatusResponse& status, double now_unix_seconds);

/// The message as one line of JSON with the names of the proto; integers are JSON numbers, as in a
/// journal, and what is not known is absent.
absl::StatusOr<std::string> StatusJson(const v1::GetStatusResponse& status);

/// The numbers of one report as a small table, and its verdict.
std::string ReportBlock(const AnalyzedReport& report, double now_unix_seconds, TextStyle style);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_STATUS_TEXT_H_
