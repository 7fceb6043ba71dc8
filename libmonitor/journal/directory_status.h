#ifndef PTQWATCH_JOURNAL_DIRECTORY_STATUS_H_
#define PTQWATCH_JOURNAL_DIRECTORY_STATUS_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "ptqwatch/execution_context.h"
#include "ptqwatch/status.h"
#include "report/status_json.h"

namespace ptqwatch::internal {

/// Computes the status of a run in another process, on this host or another, from the contents of
/// its run directory: a run lives as long as they change. Not thread-safe.
class DirectoryStatus {
 public:
  DirectoryStatus(std::string run_dir, Clock* clock);

  void OnStatus(const RunStatus& status);
  void OnReport(std::shared_ptr<const AnalyzedReport> report);
  void OnEvent(const Event& event);
  /// Whether anything was read, so the run exists.
  bool known() const;
  /// Whether the first status is old by the clock of another host, which may be wrong: for the next
  /// five seconds, a newer status would show that the run lives.
  bool undecided() const;
  /// Whether the status file shows no sign of life, or that the run is over.
  bool ended() const;
  /// When the contents of the status file last changed, by the monotonic clock.
  std::chrono::nanoseconds changed() const { return changed_; }

  /// Returns the status with an empty name.
  RunStatus run_status() const;

 private:
  std::chrono::duration<double> Unchanged() const;
  bool FirstIsOld() const;
  bool IsSilent() const;
  MonitorStatus status() const;
  MonitorStatus FromStatusFile() const;
  MonitorStatus FromJournal() const;

  Clock* const clock_;
  RunInfo run_;
  std::optional<RunStatus> newest_;
  std::chrono::nanoseconds changed_{0};  // when `newest_` last changed
  double first_age_ = 0;                 // age of the first status when it was read, in seconds
  bool seen_changing_ = false;
  std::shared_ptr<const AnalyzedReport> latest_;
  int64_t reports_ = 0;
  std::optional<Event> last_event_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_DIRECTORY_STATUS_H_
