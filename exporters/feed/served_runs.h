#ifndef PTQWATCH_FEED_SERVED_RUNS_H_
#define PTQWATCH_FEED_SERVED_RUNS_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "feed/run_feed.h"
#include "ptqwatch/control.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

class ServedRun;

/// A run as a request shows it, taken at one moment.
struct RunView {
  std::shared_ptr<const ServedRun> run;
  RunStatus status;   ///< under the server's name for the run, which may be empty
  bool open = false;  ///< its past has been read
  std::shared_ptr<const AnalyzedReport> report;  ///< the newest; null before the first
  /// Since the snapshot of `report`; NaN before the first. The time of day is asked once for each
  /// report: setting it changes no age.
  double report_age_seconds = std::numeric_limits<double>::quiet_NaN();
};

/// A run that is served: what its follower has seen, and where its commands go. Thread-safe, but
/// for one follower alone.
class ServedRun : public std::enable_shared_from_this<ServedRun> {
 public:
  /// `commands` must outlive this; null: the run takes no commands.
  ServedRun(std::string name, Control* commands, const ReportHistory::Limits& limits,
            ReportForms forms, std::function<void()> changed, Clock* clock = Clock::Real())

      : control(commands), feed(limits, std::move(forms), std::move(changed)), clock_(clock) {
    status_.name = std::move(name);
  }

  /// The name in it is left out. A status that is not set again within 15 seconds is shown as
  /// degraded, as its follower hangs.
  void SetStatus(RunStatus status);
  void Publish(const AnalyzedReport& report);
  /// Shows the newest report until SetOpen, while those before it are published.
  void ShowAheadOfPast(std::shared_ptr<const AnalyzedReport> newest);
  void Publish(const Event& event) { feed.Publish(event); }
  RunView Look() const;
  void SetOpen();
  bool open() const;

  Control* const control;
  RunFeed feed;

 private:
  void Show(std::shared_ptr<const AnalyzedReport> report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Clock* const clock_;
  mutable Mutex mutex_;
  RunStatus status_ ABSL_GUARDED_BY(mutex_);
  double status_seconds_ ABSL_GUARDED_BY(mutex_) = 0;  // by Monotonic(), when it was set
  std::shared_ptr<const AnalyzedReport> report_ ABSL_GUARDED_BY(mutex_);
  double snapshot_seconds_ ABSL_GUARDED_BY(mutex_) =  // by Monotonic()
      std::numeric_limits<double>::quiet_NaN();
  int64_t out_of_order_ ABSL_GUARDED_BY(mutex_) = 0;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  bool ahead_of_past_ ABSL_GUARDED_BY(mutex_) = false;
};

/// The runs of a server, in the order of their names. Thread-safe.
class ServedRuns {
 public:
  /// `changed` is called after a run was added or removed; it must return at once.
  explicit ServedRuns(std::function<void()> changed = [] {}) : changed_(std::move(changed)) {}

  /// Shows the status of the run; its reports are yet to come.
  void Add(std::shared_ptr<ServedRun> run);
  /// The past of the run has been published: it is open to clients. REQUIRES: Add.
  void Open(const std::shared_ptr<ServedRun>& run);
  /// Shows it no longer; its streams end once they have sent what there is.
  void Remove(const std::shared_ptr<ServedRun>& run);

  /// All runs. The lock is held for a copy only, never while a page is made.
  std::vector<RunView> Look() const;
  /// Those that are open.
  std::vector<RunView> Open() const;
  bool any_open() const;
  /// The open run of this name or id, or with an empty one the only one there is. NotFound,
  /// InvalidArgument if there are several, Unavailable if there is none; all name the runs.
  absl::StatusOr<RunView> Find(const std::string& run) const;

 private:
  const std::function<void()> changed_;
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<ServedRun>> runs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_FEED_SERVED_RUNS_H_
