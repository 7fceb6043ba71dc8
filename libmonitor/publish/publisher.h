#ifndef PTQWATCH_PUBLISH_PUBLISHER_H_
#define PTQWATCH_PUBLISH_PUBLISHER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/log.h"
#include "base/mutex.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/exporter.h"
#include "publish/status_board.h"

namespace ptqwatch::internal {

/// Owns the exporters, passes them every report and event, and keeps the newest report. One thread
/// calls Publish; any thread may call PublishEvent and the StatusSource members.
class Publisher final : public StatusSource {
 public:
  /// `complete` adds values to a MonitorStatus that `board` does not count; any thread calls it.
  /// `board` must outlive this.
  Publisher(RunInfo run, StatusBoard* board, Clock* clock,
            std::vector<std::unique_ptr<Exporter>> exporters,
            std::function<void(MonitorStatus&)> complete = nullptr);

  /// Stop(1 s).
  ~Publisher() override { Stop(std::chrono::seconds(1)); }

  /// Starts the exporters in order. If one of the first `required` fails, stops those already
  /// started and returns its error. Leaves out any other exporter that fails, with a log line and
  /// an event kExporterFailed.
  absl::Status Start(Control* control, size_t required = SIZE_MAX);
  /// Neither has an effect after Stop. If an exporter throws, all get one event kExporterFailed,
  /// and no further one until it has worked again.
  void Publish(std::shared_ptr<const AnalyzedReport> report);
  void PublishEvent(const Event& event);
  /// Publishes `last`, if given, and stops the exporters within the deadline; idempotent. No
  /// exporter is called afterwards. From inside an exporter's OnReport or OnEvent it only logs an
  /// error. `destroy` also destroys the exporters on this thread, for a monitor thread that is left
  /// behind and would destroy them later.
  void Stop(std::chrono::milliseconds deadline, bool destroy = false,
            const std::optional<Event>& last = std::nullopt);

  void SetServer(const ServerStatus& server) { board_->SetServer(server); }

  const RunInfo& run() const override { return run_; }
  MonitorStatus status() const override;
  std::shared_ptr<const AnalyzedReport> latest() const override;
  void CountDrop(std::string_view exporter, std::string_view reason) override;

 private:
  struct Outlet {
    std::unique_ptr<Exporter> exporter;
    bool failing = false;  // threw in the last call
  };
  // Calls every exporter. Returns the errors of exporters that have just begun to fail.
  std::vector<std::string> ForEach(absl::FunctionRef<void(Exporter&)> call, bool drops)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(exporters_mutex_);
  void Announce(const Event& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(exporters_mutex_);
  void AnnounceFailures(const std::vector<std::string>& failures, int64_t step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(exporters_mutex_);

  const RunInfo run_;
  StatusBoard* const board_;
  Clock* const clock_;
  const std::function<void(MonitorStatus&)> complete_;
  RateLimitedLog failed_;

  TimedMutex exporters_mutex_;
  std::vector<Outlet> outlets_ ABSL_GUARDED_BY(exporters_mutex_);
  std::atomic<std::thread::id> publishing_;  // the thread that is calling exporters
  bool open_ ABSL_GUARDED_BY(exporters_mutex_) = false;

  mutable Mutex latest_mutex_;
  std::shared_ptr<const AnalyzedReport> latest_ ABSL_GUARDED_BY(latest_mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PUBLISH_PUBLISHER_H_
