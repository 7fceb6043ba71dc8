#include "monitor/publisher.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "base/strings.h"

namespace ptqwatch::internal {

Publisher::Publisher(RunInfo run, std::shared_ptr<StatusBoard> board, Clock* clock,
                     std::vector<std::unique_ptr<Exporter>> exporters)
    : run_(std::move(run)),
      board_(std::move(board)),
      clock_(clock),
      exporters_(std::move(exporters)) {}

absl::Status Publisher::Start(Control* control) {
  TimedMutexLock lock(exporters_mutex_);
  for (size_t i = 0; i < exporters_.size(); ++i) {
    absl::Status status;
    try {
      status = exporters_[i]->Start(this, control);
    } catch (const std::exception& error) {
      status = absl::InternalError(error.what());
    }
    if (status.ok()) continue;
    while (i-- > 0) exporters_[i]->Stop(std::chrono::seconds(1));
    return status;
  }
  open_ = true;
  return absl::OkStatus();
}

void Publisher::Publish(std::shared_ptr<const AnalyzedReport> report) {
  {
    MutexLock lock(latest_mutex_);
    latest_ = report;
  }
  TimedMutexLock lock(exporters_mutex_);
  if (!open_) return;
  for (auto& exporter : exporters_) {
    try {
      exporter->OnReport(report);
    } catch (const std::exception& error) {
      CountDrop(exporter->name(), "exception");
      failed_(Severity::kError,
              internal::StrCat("exporter ", exporter->name(), ": ", error.what()));
    }
  }
}

void Publisher::PublishEvent(const Event& event) {
  board_->OnEvent(event.kind);
  TimedMutexLock lock(exporters_mutex_);
  if (!open_) return;
  for (auto& exporter : exporters_) {
    try {
      exporter->OnEvent(event);
    } catch (const std::exception& error) {
      failed_(Severity::kError,
              internal::StrCat("exporter ", exporter->name(), ": ", error.what()));
    }
  }
}

void Publisher::Stop(std::chrono::milliseconds deadline, bool destroy) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  // An exporter that breaks its contract and blocks in OnReport must not block this, too.
  if (!exporters_mutex_.TryLockUntil(end)) {
    Log(Severity::kError,
        "an exporter does not return from OnReport; the exporters are left as they are");
    return;
  }
  TimedMutexLock lock(exporters_mutex_, std::adopt_lock);
  if (!std::exchange(open_, false)) return;
  for (auto& exporter : exporters_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    try {
      exporter->Stop(std::max(left, std::chrono::milliseconds(50)));
    } catch (...) {
      Log(Severity::kError, internal::StrCat("exporter ", exporter->name(), ": exception in Stop"));
    }
  }
  if (destroy) exporters_.clear();
}

std::shared_ptr<const AnalyzedReport> Publisher::latest() const {
  MutexLock lock(latest_mutex_);
  return latest_;
}

void Publisher::CountDrop(std::string_view exporter, std::string_view reason) {
  board_->CountDrop(exporter, reason);
}

}  // namespace ptqwatch::internal
