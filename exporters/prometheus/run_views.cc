#include "run_views.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "base/strings.h"
#include "metric_families.h"
#include "nlohmann/json.hpp"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {
namespace {

constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

nlohmann::ordered_json HealthOf(const RunView& view) {
  nlohmann::ordered_json body;
  if (!view.run.empty()) body["run"] = view.run;
  body["health"] = ToString(view.status.health);
  if (!view.status.health_reason.empty()) body["reason"] = view.status.health_reason;
  if (view.status.step) body["step"] = *view.status.step;
  if (view.report != nullptr) {
    const double age =
        Clock::Real()->UnixSeconds() - view.report->report.snapshot_time_unix_seconds;
    if (std::isfinite(age)) body["report_age_seconds"] = std::round(1e3 * std::max(age, 0.0)) / 1e3;
  }
  return body;
}

// One anonymous run is the page; runs with names are a list on it.
HttpResponse HealthPage(const std::vector<RunView>& views, int status) {
  nlohmann::ordered_json body;
  if (views.empty()) {
    body["health"] = ToString(Health::kStarting);
  } else if (views[0].run.empty()) {
    body = HealthOf(views[0]);
  } else {
    body["runs"] = nlohmann::ordered_json::array();
    for (const RunView& view : views) body["runs"].push_back(HealthOf(view));
  }
  return {
      .status = status,
      .content_type = "application/json",
      .body = body.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace) +
              "\n"};
}

// A run that another process follows may be over; this process's own monitor then does not measure.
bool IsReady(const RunView& view) {
  const Health health = view.status.health;
  return health == Health::kOk || health == Health::kStarting ||
         (health == Health::kStopped && !view.run.empty());
}

}  // namespace

class RunViews::RunExporter final : public Exporter {
 public:
  RunExporter(RunViews* views, std::string run) : views_(views), run_(std::move(run)) {}
  ~RunExporter() override { Stop(std::chrono::milliseconds(0)); }

  std::string_view name() const override { return "prometheus"; }
  absl::Status Start(StatusSource* source, Control*) override {
    MutexLock lock(views_->mutex_);
    views_->sources_[run_] = source;
    return absl::OkStatus();
  }
  // A scrape asks the source for the newest report.
  void OnReport(std::shared_ptr<const AnalyzedReport>) override {}
  void Stop(std::chrono::milliseconds) override {
    if (std::exchange(stopped_, true)) return;
    MutexLock lock(views_->mutex_);
    views_->sources_.erase(run_);
  }

 private:
  RunViews* const views_;
  const std::string run_;
  bool stopped_ = false;
};

absl::StatusOr<std::unique_ptr<Exporter>> RunViews::Add(const std::string& run) {
  MutexLock lock(mutex_);
  if (!sources_.emplace(run, nullptr).second) {
    return absl::AlreadyExistsError(StrCat("there is a run '", run, "' already"));
  }
  return std::make_unique<RunExporter>(this, run);
}

std::vector<RunView> RunViews::Look() const {
  MutexLock lock(mutex_);
  std::vector<RunView> views;
  for (const auto& [run, source] : sources_) {
    if (source == nullptr) continue;
    views.push_back({run, source->run(), source->status(), source->latest()});
  }
  return views;
}

HttpResponse RunViews::Metrics(int max_layers) const {
  const std::vector<RunView> views = Look();
  if (views.empty()) return {.status = 503, .body = "the monitor is not running\n"};
  std::vector<RunMetrics> runs;
  for (const RunView& view : views) {
    runs.push_back({view.run, {view.info, view.status, view.report.get()}});
  }
  return {.content_type = kMetricsContentType, .body = RenderMetrics(runs, max_layers)};
}

HttpResponse RunViews::Healthz() const { return HealthPage(Look(), 200); }

HttpResponse RunViews::Readyz() const {
  const std::vector<RunView> views = Look();
  const bool ready = !views.empty() && std::all_of(views.begin(), views.end(), IsReady);
  return HealthPage(views, ready ? 200 : 503);
}

}  // namespace ptqwatch::internal
