#ifndef PTQWATCH_JOURNAL_FOLLOWED_STATUS_H_
#define PTQWATCH_JOURNAL_FOLLOWED_STATUS_H_

#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/status.h"
#include "report/status_json.h"

namespace ptqwatch::internal {

/// The status of a run in another process, from what its run directory says. One thread calls the
/// On... functions; the StatusSource side is thread-safe.
class FollowedStatus final : public StatusSource {
 public:
  FollowedStatus(std::string run_dir, Clock* clock);

  void OnStatus(const RunStatus& status);
  void OnReport(std::shared_ptr<const AnalyzedReport> report);
  void OnEvent(const Event& event);
  /// There is a run: something was read.
  bool known() const;

  const RunInfo& run() const override;
  MonitorStatus status() const override;
  /// All that is known, under no name.
  RunStatus run_status() const;
  std::shared_ptr<const AnalyzedReport> latest() const override;
  void CountDrop(std::string_view exporter, std::string_view reason) override;

 private:
  void SetRun(const RunInfo& run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  MonitorStatus FromStatusFile() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  MonitorStatus FromJournal() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string run_dir_;
  Clock* const clock_;
  mutable Mutex mutex_;
  // References to former ones are still held.
  std::list<RunInfo> runs_ ABSL_GUARDED_BY(mutex_);
  std::optional<RunStatus> newest_ ABSL_GUARDED_BY(mutex_);
  std::chrono::nanoseconds changed_ ABSL_GUARDED_BY(mutex_){0};  // when `newest_` last did
  double first_age_ ABSL_GUARDED_BY(mutex_) = 0;  // seconds; of the first status, when it was read
  bool seen_changing_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const AnalyzedReport> latest_ ABSL_GUARDED_BY(mutex_);
  int64_t reports_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Event> last_event_ ABSL_GUARDED_BY(mutex_);
  std::vector<DroppedReports> drops_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_FOLLOWED_STATUS_H_
