#include "publish/publisher.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/guard.h"
#include "base/stopwatch.h"
#include "base/strings.h"

namespace ptqwatch::internal {

Publisher::Publisher(RunInfo run, StatusBoard* board, Clock* clock,
                     std::vector<std::unique_ptr<Exporter>> exporters,
                     std::function<void(MonitorStatus&)> complete)
    : run_(std::move(run)), board_(board), clock_(clock), complete_(std::move(complete)) {
  for (std::unique_ptr<Exporter>& exporter : exporters) outlets_.push_back({std::move(exporter)});
}

absl::Status Publisher::Start(Control* control, size_t required) {
  TimedMutexLock lock(exporters_mutex_);
  std::vector<Outlet> started;
  std::vector<std::string> failures;
  for (size_t i = 0; i < outlets_.size(); ++i) {
    Exporter& exporter = *outlets_[i].exporter;
    const absl::Status status = Guard([&] { return exporter.Start(this, control); });
    if (status.ok()) {
      started.push_back(std::move(outlets_[i]));
    } else if (i < required) {
      for (Outlet& outlet : started) outlet.exporter->Stop(std::chrono::seconds(1));
      return status;
    } else {
      failures.push_back(StrCat("exporter ", exporter.name(), " is left out: ", Message(status)));
      Log(Severity::kError, failures.back());
    }
  }
  outlets_ = std::move(started);
  open_ = true;
  AnnounceFailures(failures, 0);
  return absl::OkStatus();
}

std::vector<std::string> Publisher::ForEach(absl::FunctionRef<void(Exporter&)> call, bool drops) {
  publishing_ = std::this_thread::get_id();
  const absl::Cleanup done = [this] { publishing_ = std::thread::id(); };
  std::vector<std::string> failures;
  for (Outlet& outlet : outlets_) {
    const absl::Status status = Guard([&] {
      call(*outlet.exporter);
      return absl::OkStatus();
    });
    if (!status.ok()) {
      const std::string message = StrCat("exporter ", outlet.exporter->name(), ": ", status);
      if (drops) CountDrop(outlet.exporter->name(), "exception");
      if (!outlet.failing) failures.push_back(message);
      failed_(Severity::kError, message);
    }
    if (!status.ok() || drops) outlet.failing = !status.ok();
  }
  return failures;
}

void Publisher::Announce(const Event& event) {
  board_->OnEvent(event.kind);
  const std::vector<std::string> failures =
      ForEach([&](Exporter& exporter) { exporter.OnEvent(event); }, /*drops=*/false);
  // An exporter that fails on this event as well has already been announced.
  if (event.kind != Event::Kind::kExporterFailed) AnnounceFailures(failures, event.step);
}

void Publisher::AnnounceFailures(const std::vector<std::string>& failures, int64_t step) {
  for (const std::string& failure : failures) {
    Announce(
        {Event::Kind::kExporterFailed, Severity::kError, step, clock_->UnixSeconds(), failure});
  }
}

void Publisher::Publish(std::shared_ptr<const AnalyzedReport> report) {
  {
    MutexLock lock(latest_mutex_);
    latest_ = report;
  }
  TimedMutexLock lock(exporters_mutex_);
  if (!open_) return;
  const std::vector<std::string> failures =
      ForEach([&](Exporter& exporter) { exporter.OnReport(report); }, /*drops=*/true);
  AnnounceFailures(failures, report->report.step);
}

void Publisher::PublishEvent(const Event& event) {
  TimedMutexLock lock(exporters_mutex_);
  if (open_) Announce(event);
}

void Publisher::Stop(std::chrono::milliseconds deadline, bool destroy,
                     const std::optional<Event>& last) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  if (publishing_ == std::this_thread::get_id()) {
    Log(Severity::kError, "Stop was called from inside an exporter; the exporters keep running");
    return;
  }
  // An exporter that blocks in OnReport, against its contract, must not block Stop as well.
  if (!exporters_mutex_.TryLockUntil(end)) {
    Log(Severity::kError,
        "an exporter does not return from OnReport; the exporters were not stopped");
    return;
  }
  TimedMutexLock lock(exporters_mutex_, std::adopt_lock);
  if (!std::exchange(open_, false)) return;
  if (last) Announce(*last);
  for (Outlet& outlet : outlets_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    const absl::Status status = Guard([&] {
      outlet.exporter->Stop(std::max(left, std::chrono::milliseconds(50)));
      return absl::OkStatus();
    });
    if (!status.ok()) {
      Log(Severity::kError,
          StrCat("exporter ", outlet.exporter->name(), ": exception in Stop: ", status));
    }
  }
  if (destroy) outlets_.clear();
}

MonitorStatus Publisher::status() const {
  MonitorStatus status = board_->Read(InSeconds(clock_->Monotonic()), clock_->UnixSeconds());
  if (complete_) complete_(status);
  return status;
}

std::shared_ptr<const AnalyzedReport> Publisher::latest() const {
  MutexLock lock(latest_mutex_);
  return latest_;
}

void Publisher::CountDrop(std::string_view exporter, std::string_view reason) {
  board_->CountDrop(exporter, reason);
}

}  // namespace ptqwatch::internal
