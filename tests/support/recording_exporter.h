#ifndef PTQWATCH_TESTS_SUPPORT_RECORDING_EXPORTER_H_
#define PTQWATCH_TESTS_SUPPORT_RECORDING_EXPORTER_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ptqwatch/exporter.h"
#include "ptqwatch/status.h"

namespace ptqwatch::testing {

/// The reports and events of a monitor. Outlives the exporter.
struct Recording {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<const AnalyzedReport>> reports;
  std::vector<Event> events;
  RunInfo run;
  bool stopped = false;

  /// Waits for the n-th report. Returns false after 60 s.
  bool WaitForReports(size_t count) {
    std::unique_lock<std::mutex> lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(60),
                            [&] { return reports.size() >= count; });
  }
  bool WaitForEvents(size_t count) {
    std::unique_lock<std::mutex> lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(60), [&] { return events.size() >= count; });
  }
  std::vector<std::shared_ptr<const AnalyzedReport>> Reports() {
    std::lock_guard<std::mutex> lock(mutex);
    return reports;
  }
  std::vector<Event> Events() {
    std::lock_guard<std::mutex> lock(mutex);
    return events;
  }
};

class RecordingExporter final : public Exporter {
 public:
  explicit RecordingExporter(std::shared_ptr<Recording> recording)
      : recording_(std::move(recording)) {}
  std::string_view name() const override { return "recording"; }
  absl::Status Start(StatusSource* source, Control*) override {
    std::lock_guard<std::mutex> lock(recording_->mutex);
    if (source != nullptr) recording_->run = source->run();
    return absl::OkStatus();
  }
  void OnReport(std::shared_ptr<const AnalyzedReport> report) override {
    std::lock_guard<std::mutex> lock(recording_->mutex);
    recording_->reports.push_back(std::move(report));
    recording_->changed.notify_all();
  }
  void OnEvent(const Event& event) override {
    std::lock_guard<std::mutex> lock(recording_->mutex);
    recording_->events.push_back(event);
    recording_->changed.notify_all();
  }
  void Stop(std::chrono::milliseconds) override {
    std::lock_guard<std::mutex> lock(recording_->mutex);
    recording_->stopped = true;
  }

 private:
  std::shared_ptr<Recording> recording_;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_RECORDING_EXPORTER_H_
