#ifndef PTQWATCH_MONITOR_PUBLISHER_H_
#define PTQWATCH_MONITOR_PUBLISHER_H_

#include <chrono>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/log.h"
#include "base/mutex.h"
#include "monitor/status_board.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/exporter.h"

namespace ptqwatch::internal {

/// Owns the exporters and hands them every report and event; keeps the newest report for those who
/// ask. Publish and PublishEvent are for one thread; the StatusSource side for any.
class Publisher final : public StatusSource {
 public:
  Publisher(RunInfo run, std::shared_ptr<StatusBoard> board, Clock* clock,
            std::vector<std::unique_ptr<Exporter>> exporters);

  /// Starts the exporters in order; stops those already started when one fails.
  absl::Status Start(Control* control);
  /// No effect after Stop.
  void Publish(std::shared_ptr<const AnalyzedReport> report);
  void PublishEvent(const Event& event);
  /// Stops the exporters within the deadline; idempotent. No exporter is called afterwards.
  /// `destroy` also destroys them, on this thread: for when the monitor thread is left behind and
  /// would do so at its own time.
  void Stop(std::chrono::milliseconds deadline, bool destroy = false);

  const RunInfo& run() const override { return run_; }
  MonitorStatus status() const override { return board_->Read(clock_->UnixSeconds()); }
  std::shared_ptr<const AnalyzedReport> latest() const override;
  void CountDrop(std::string_view exporter, std::string_view reason) override;

 private:
  const RunInfo run_;
  const std::shared_ptr<StatusBoard> board_;
  Clock* const clock_;
  RateLimitedLog failed_;

  TimedMutex exporters_mutex_;
  std::vector<std::unique_ptr<Exporter>> exporters_ ABSL_GUARDED_BY(exporters_mutex_);
  bool open_ ABSL_GUARDED_BY(exporters_mutex_) = false;

  mutable Mutex latest_mutex_;
  std::shared_ptr<const AnalyzedReport> latest_ ABSL_GUARDED_BY(latest_mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_PUBLISHER_H_
