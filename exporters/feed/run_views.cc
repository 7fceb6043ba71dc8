#include "feed/run_views.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

double MonotonicSeconds(const Clock& clock) {
  return std::chrono::duration<double>(clock.Monotonic()).count();
}

}  // namespace

// What is published before Start is the past of the run.
class RunViews::RunExporter final : public Exporter {
 public:
  RunExporter(RunViews* views, std::string run, std::shared_ptr<JsonFeed> feed)
      : views_(views), run_(std::move(run)), feed_(std::move(feed)) {}
  ~RunExporter() override { Stop(std::chrono::milliseconds(0)); }

  std::string_view name() const override { return "prometheus"; }
  absl::Status Start(StatusSource* source, Control*) override {
    source_ = source;
    MutexLock lock(views_->mutex_);
    views_->runs_[run_].source = source;
    return absl::OkStatus();
  }
  void OnReport(std::shared_ptr<const AnalyzedReport> report) override {
    const Clock& clock = *views_->clock_;
    const double age = clock.UnixSeconds() - report->report.snapshot_time_unix_seconds;
    {
      MutexLock lock(views_->mutex_);
      const auto shown = views_->runs_.find(run_);
      if (shown == views_->runs_.end()) return;  // stopped
      shown->second.snapshot_seconds = MonotonicSeconds(clock) - std::max(age, 0.0);
    }
    if (!feed_->Publish(*report) && source_ != nullptr) {
      source_->CountDrop("prometheus", "out_of_order");
    }
  }
  void OnEvent(const Event& event) override { feed_->Publish(event); }
  void Stop(std::chrono::milliseconds) override {
    if (std::exchange(stopped_, true)) return;
    feed_->Close();
    MutexLock lock(views_->mutex_);
    views_->runs_.erase(run_);
  }

 private:
  RunViews* const views_;
  const std::string run_;
  const std::shared_ptr<JsonFeed> feed_;
  StatusSource* source_ = nullptr;
  bool stopped_ = false;
};

absl::StatusOr<std::unique_ptr<Exporter>> RunViews::Add(const std::string& run) {
  auto feed = std::make_shared<JsonFeed>(limits_, changed_);
  MutexLock lock(mutex_);
  if (!runs_.emplace(run, Shown{nullptr, feed}).second) {
    return absl::AlreadyExistsError(StrCat("there is a run '", run, "' already"));
  }
  return std::make_unique<RunExporter>(this, run, std::move(feed));
}

std::vector<RunView> RunViews::Look() const {
  MutexLock lock(mutex_);
  std::vector<RunView> views;
  for (const auto& [run, shown] : runs_) {
    if (shown.source == nullptr) continue;
    views.push_back({run, shown.source->run(), shown.source->status(), shown.source->latest(),
                     shown.feed, MonotonicSeconds(*clock_) - shown.snapshot_seconds});
  }
  return views;
}

absl::StatusOr<RunView> RunViews::Find(const std::string& run) const {
  std::vector<RunView> views = Look();
  if (views.empty()) return absl::UnavailableError("there is no run yet");
  if (run.empty() && views.size() == 1) return std::move(views[0]);
  std::string names;
  for (RunView& view : views) {
    // A run of a trainer's own server has no name but its id.
    if (!run.empty() && (view.run == run || view.info.run_id == run)) return std::move(view);
    names +=
        StrCat(names.empty() ? "'" : ", '", view.run.empty() ? view.info.run_id : view.run, "'");
  }
  if (run.empty()) return absl::InvalidArgumentError(StrCat("run must be one of ", names));
  return absl::NotFoundError(StrCat("run '", run, "' is not here; there is ", names));
}

}  // namespace ptqwatch::internal
