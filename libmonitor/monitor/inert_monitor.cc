#include "monitor/inert_monitor.h"

#include <chrono>
#include <utility>

#include "base/free_memory.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "journal/journal_writer.h"
#include "journal/run_endpoint.h"
#include "journal/run_lock.h"
#include "publish/control_queue.h"

namespace ptqwatch::internal {
namespace {

constexpr std::chrono::seconds kInertTimeAtEnd{2};

RunInfo KnownRunInfo(const MonitorOptions& options) {
  RunInfo run;
  run.run_id = options.run_id;
  run.run_dir = options.run_dir;
  return run;
}

// Adds the exporters of the run directory, unless another monitor holds it or it is unusable.
std::vector<std::unique_ptr<Exporter>> AllExporters(
    const MonitorOptions& options, std::vector<std::unique_ptr<Exporter>> exporters) {
  // If memory is short, the trainer needs the memory that these threads would take.
  if (options.run_dir.empty() || FreeMemoryBytes() == 0) return exporters;
  absl::StatusOr<std::shared_ptr<RunLock>> lock = RunLock::Take(options.run_dir);
  if (!lock.ok()) return exporters;
  exporters.insert(exporters.begin(), MakeRunEndpoint(*std::move(lock)));
  exporters.insert(exporters.begin(), MakeJournalWriter());
  return exporters;
}

}  // namespace

InertMonitor::InertMonitor(const MonitorOptions& options, absl::Status why,
                           std::vector<std::unique_ptr<Exporter>> exporters)
    : why_(std::move(why)),
      clock_(options.clock),
      publisher_(KnownRunInfo(options), &board_, clock_,
                 AllExporters(options, std::move(exporters))) {
  const std::string message = StrCat("nothing is measured: ", Message(why_));
  board_.SetHealth(Health::kInert, message);
  Log(Severity::kError, message);
  publisher_.Start(&NoControl(), /*required=*/0).IgnoreError();
  publisher_.PublishEvent(
      {Event::Kind::kInert, Severity::kError, 0, clock_->UnixSeconds(), message});
  at_end_.emplace([this] { publisher_.Stop(kInertTimeAtEnd); });
}

void InertMonitor::OnStep(const StepInfo& info) noexcept {
  steps_.OnStep(info, LrPhase::kUnknown, InSeconds(clock_->Monotonic()));
}

absl::Status InertMonitor::Stop(std::chrono::milliseconds deadline) {
  publisher_.Stop(deadline);
  return absl::OkStatus();
}

std::string InertMonitor::Describe() const {
  return StrCat("nothing is measured: ", Message(why_), "\n");
}

void InertMonitor::AnnounceServer(bool failed, const std::string& message) {
  publisher_.PublishEvent({Event::Kind::kServerFailed, failed ? Severity::kError : Severity::kInfo,
                           publisher_.status().step.value_or(0), clock_->UnixSeconds(), message});
}

Control& NoControl() {
  static ControlQueue* const refusing = [] {
    auto* queue = new ControlQueue;
    queue->Close("this monitor is off");
    return queue;
  }();
  return *refusing;
}

}  // namespace ptqwatch::internal
