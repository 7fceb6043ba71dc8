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

/// A consistent copy of a run's state, taken for one request.
struct RunView {
  std::shared_ptr<const ServedRun> run;
  RunStatus status;   ///< with the server's name for the run, which may be empty
  bool open = false;  ///< the journal has been read
  std::shared_ptr<const AnalyzedReport> report;  ///< the newest; null before the first
  /// Seconds since the snapshot of `report`, NaN before the first. Measured with the monotonic
  /// clock, so setting the time of day does not change it.
  double report_age_seconds = std::numeric_limits<double>::quiet_NaN();
};

/// A served run: the reports, events and status that its follower has seen, and the control that
/// takes its commands. Thread-safe for any number of readers and one follower.
class ServedRun : public std::enable_shared_from_this<ServedRun> {
 public:
  /// `commands` must outlive this object. If it is null, the run takes no commands.
  ServedRun(std::string name, Control* commands, const ReportHistory::Limits& limits,
            ReportForms forms, std::function<void()> changed, Clock* clock = Clock::Real())

      : control(commands), feed(limits, std::move(forms), std::move(changed)), clock_(clock) {
    status_.name = std::move(name);
  }

  /// Keeps the run's own name, not the one in `status`. If no status is set for 15 seconds, the run
  /// is shown as degraded because its follower hangs.
  void SetStatus(RunStatus status);
  void Publish(const AnalyzedReport& report);
  /// Shows `newest` while earlier reports are still being published, until SetOpen.
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
  /// Calls `changed` after each change of the list or of an open state; it must return at once.
  explicit ServedRuns(std::function<void()> changed = [] {}) : changed_(std::move(changed)) {}

  /// Adds a run that shows its status and newest report until Open.
  void Add(std::shared_ptr<ServedRun> run);
  /// Makes the reports of the run visible to clients. REQUIRES: Add; the journal has been
  /// published.
  void Open(const std::shared_ptr<ServedRun>& run);
  /// Hides the run. Its streams end once they have sent everything published so far.
  void Remove(const std::shared_ptr<ServedRun>& run);

  /// All runs. Holds the lock only while it copies the list.
  std::vector<RunView> Look() const;
  /// The open runs.
  std::vector<RunView> Open() const;
  bool any_open() const;
  /// Returns the open run with this name or id; an empty string means the only open run. NotFound
  /// if there is no such run, InvalidArgument if the string is empty and several are open; both
  /// list the runs. Unavailable if no run is open.
  absl::StatusOr<RunView> Find(const std::string& run) const;

 private:
  const std::function<void()> changed_;
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<ServedRun>> runs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_FEED_SERVED_RUNS_H_
