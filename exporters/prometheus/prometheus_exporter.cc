#include "ptqwatch/prometheus_exporter.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/guard.h"
#include "base/inert_exporter.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "http_server.h"
#include "metric_families.h"
#include "nlohmann/json.hpp"

namespace ptqwatch {
namespace {

using internal::HttpResponse;
using internal::HttpServer;
using internal::StrCat;

constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

double UnixSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// What a scrape shows, taken at one moment.
struct View {
  RunInfo run;
  MonitorStatus status;
  std::shared_ptr<const AnalyzedReport> report;
};

HttpResponse NotStarted() { return {.status = 503, .body = "the monitor is not running\n"}; }

HttpResponse Metrics(const std::optional<View>& view, int max_layers) {
  if (!view) return NotStarted();
  return {
      .content_type = kMetricsContentType,
      .body = internal::RenderMetrics({view->run, view->status, view->report.get()}, max_layers)};
}

HttpResponse HealthPage(const std::optional<View>& view, int status) {
  nlohmann::ordered_json body;
  body["health"] = ToString(view ? view->status.health : Health::kStarting);
  if (view) {
    if (!view->status.health_reason.empty()) body["reason"] = view->status.health_reason;
    if (view->status.step) body["step"] = *view->status.step;
  }
  if (view && view->report != nullptr) {
    const double age = UnixSeconds() - view->report->report.snapshot_time_unix_seconds;
    if (std::isfinite(age)) body["report_age_seconds"] = std::round(1e3 * std::max(age, 0.0)) / 1e3;
  }
  return {
      .status = status,
      .content_type = "application/json",
      .body = body.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace) +
              "\n"};
}

// The process is alive, or it would not answer. Whoever restarts it for a measurement that failed
// ends a training run.
HttpResponse Healthz(const std::optional<View>& view) { return HealthPage(view, 200); }

HttpResponse Readyz(const std::optional<View>& view) {
  const bool ready =
      view && (view->status.health == Health::kOk || view->status.health == Health::kStarting);
  return HealthPage(view, ready ? 200 : 503);
}

class PrometheusExporterImpl final : public PrometheusExporter {
 public:
  ~PrometheusExporterImpl() override { Stop(std::chrono::seconds(2)); }

  absl::Status Bind(const PrometheusOptions& options) {
    PTQWATCH_ASSIGN_OR_RETURN(
        server_,
        HttpServer::Start(
            {.kind = "http",
             .address = options.address,
             .allow_remote = options.allow_remote,
             .allow_remote_option = "PrometheusOptions::allow_remote"},
            {{"/metrics",
              [this, max_layers = options.max_layers] { return Metrics(Look(), max_layers); }},
             {"/healthz", [this] { return Healthz(Look()); }},
             {"/readyz", [this] { return Readyz(Look()); }}}));
    return absl::OkStatus();
  }

  std::string_view name() const override { return "prometheus"; }
  const std::string& address() const override { return server_->address(); }

  absl::Status Start(StatusSource* source, Control*) override {
    internal::MutexLock lock(mutex_);
    source_ = source;
    return absl::OkStatus();
  }

  // A scrape asks the source for the newest report.
  void OnReport(std::shared_ptr<const AnalyzedReport>) override {}

  void Stop(std::chrono::milliseconds) override {
    if (server_ != nullptr) server_->Stop();
    internal::MutexLock lock(mutex_);
    source_ = nullptr;
  }

 private:
  // nullopt before Start. The lock is held for a copy only, never while a page is rendered.
  std::optional<View> Look() {
    internal::MutexLock lock(mutex_);
    if (source_ == nullptr) return std::nullopt;
    return View{source_->run(), source_->status(), source_->latest()};
  }

  internal::Mutex mutex_;
  StatusSource* source_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::unique_ptr<HttpServer> server_;  // last: its threads end before what they use is destroyed
};

}  // namespace

absl::StatusOr<std::unique_ptr<PrometheusExporter>> PrometheusExporter::Create(
    PrometheusOptions options) {
  if (options.max_layers < 0) {
    return absl::InvalidArgumentError(
        StrCat("PrometheusOptions::max_layers must not be negative, is ", options.max_layers));
  }
  absl::StatusOr<std::unique_ptr<PrometheusExporter>> exporter =
      internal::Guard(StrCat("http address '", options.address, "'"), absl::StatusCode::kInternal,
                      [&]() -> absl::StatusOr<std::unique_ptr<PrometheusExporter>> {
                        auto bound = std::make_unique<PrometheusExporterImpl>();
                        PTQWATCH_RETURN_IF_ERROR(bound->Bind(options));
                        return bound;
                      });
  if (exporter.ok() || !internal::BecomesInert(options.on_failure, exporter.status())) {
    return exporter;
  }
  return std::make_unique<internal::InertExporter<PrometheusExporter>>("prometheus",
                                                                       exporter.status());
}

}  // namespace ptqwatch
