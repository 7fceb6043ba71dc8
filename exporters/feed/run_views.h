#ifndef PTQWATCH_FEED_RUN_VIEWS_H_
#define PTQWATCH_FEED_RUN_VIEWS_H_

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "feed/json_feed.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/exporter.h"

namespace ptqwatch::internal {

/// A run as a request shows it, taken at one moment.
struct RunView {
  std::string run;
  RunInfo info;
  MonitorStatus status;
  std::shared_ptr<const AnalyzedReport> report;
  std::shared_ptr<const JsonFeed> feed;
  /// Since the snapshot of the newest report that was published; NaN before the first. The time of
  /// day is asked once for each report: setting it changes no age.
  double report_age_seconds = std::numeric_limits<double>::quiet_NaN();
};

/// The runs of an HTTP server. Thread-safe.
class RunViews {
 public:
  /// `changed` is called after each publication; it must return at once.
  RunViews(const ReportHistory::Limits& limits, std::function<void()> changed,
           Clock* clock = Clock::Real())
      : limits_(limits), changed_(std::move(changed)), clock_(clock) {}

  /// The exporter of one more run; AlreadyExists for a second one of a name. It must not outlive
  /// this.
  absl::StatusOr<std::unique_ptr<Exporter>> Add(const std::string& run);
  /// The runs that were started. The lock is held for a copy only, never while a page is made.
  std::vector<RunView> Look() const;
  /// The run of this name, or with an empty one the only run there is. NotFound, InvalidArgument
  /// where there are several, Unavailable where there is none; all name the runs.
  absl::StatusOr<RunView> Find(const std::string& run) const;

 private:
  class RunExporter;
  struct Shown {
    StatusSource* source = nullptr;  // null before Start
    std::shared_ptr<JsonFeed> feed;
    double snapshot_seconds = std::numeric_limits<double>::quiet_NaN();  // by Monotonic()
  };

  const ReportHistory::Limits limits_;
  const std::function<void()> changed_;
  Clock* const clock_;
  mutable Mutex mutex_;
  std::map<std::string, Shown> runs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_FEED_RUN_VIEWS_H_
