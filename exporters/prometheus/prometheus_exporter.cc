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
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "http_server.h"
#include "metric_families.h"

namespace ptqwatch {
namespace {

using internal::HttpResponse;
using internal::HttpServer;
using internal::StrCat;
using internal::StrFormat;

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

HttpResponse Healthz(const std::optional<View>& view) {
  if (!view) return NotStarted();
  const Health health = view->status.health;
  std::string body = StrCat("{\"health\":\"", ToString(health), "\"");
  if (view->status.step) body += StrCat(",\"step\":", *view->status.step);
  if (view->report != nullptr) {
    const double age = UnixSeconds() - view->report->report.snapshot_time_unix_seconds;
    if (std::isfinite(age)) {
      body += StrFormat(",\"report_age_seconds\":%.3f", std::max(age, 0.0));
    }
  }
  body += "}\n";
  const bool well = health == Health::kOk || health == Health::kStarting;
  return {.status = well ? 200 : 503, .content_type = "application/json", .body = std::move(body)};
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
             {"/healthz", [this] { return Healthz(Look()); }}}));
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
  return internal::Guard(StrCat("http address '", options.address, "'"),
                         absl::StatusCode::kInternal,
                         [&]() -> absl::StatusOr<std::unique_ptr<PrometheusExporter>> {
                           auto exporter = std::make_unique<PrometheusExporterImpl>();
                           PTQWATCH_RETURN_IF_ERROR(exporter->Bind(options));
                           return exporter;
                         });
}

}  // namespace ptqwatch
