#ifndef PTQWATCH_MONITOR_PUBLISHER_H_
#define PTQWATCH_MONITOR_PUBLISHER_H_

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
#include "monitor/status_board.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/exporter.h"

namespace ptqwatch::internal {

/// Owns the exporters and hands them every report and event; keeps the newest report for those who
/// ask. Publish is for one thread; PublishEvent and the StatusSource side for any.
class Publisher final : public StatusSource {
 public:
  /// `complete` adds to a MonitorStatus what `board`, which must outlive this, does not count;
  /// called by any thread.
  Publisher(RunInfo run, StatusBoard* board, Clock* clock,
            std::vector<std::unique_ptr<Exporter>> exporters,
            std::function<void(MonitorStatus&)> complete = nullptr);

  /// Stop(1 s).
  ~Publisher() override { Stop(std::chrono::seconds(1)); }

  /// Starts the exporters in order. Where one of the first `required` fails, stops those already
  /// started and gives its error; any other one that fails is left out, which the log and an event
  /// kExporterFailed say.
  absl::Status Start(Control* control, size_t required = SIZE_MAX);
  /// Neither has an effect after Stop. An exporter that throws is reported to the others by an
  /// event kExporterFailed, once until it works again.
  void Publish(std::shared_ptr<const AnalyzedReport> report);
  void PublishEvent(const Event& event);
  /// Publishes `last`, if given, and stops the exporters within the deadline; idempotent. No
  /// exporter is called afterwards. Called from inside an exporter's OnReport or OnEvent, it does
  /// nothing but log that. `destroy` also destroys them, on this thread: for when the
  /// monitor thread is left behind and would do so at its own time.
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
    bool failing = false;  // threw at the last call
  };
  // Calls every exporter. Returns what those that have just begun to fail threw.
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

#endif  // PTQWATCH_MONITOR_PUBLISHER_H_
