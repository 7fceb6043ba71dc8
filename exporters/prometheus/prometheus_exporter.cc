#include "ptqwatch/prometheus_exporter.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/strings.h"
#include "http_server.h"
#include "metric_families.h"

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

HttpResponse Healthz(const std::optional<View>& view) {
  if (!view) return NotStarted();
  const Health health = view->status.health;
  std::string body = StrCat("{\"health\":\"", ToString(health), "\"");
  if (view->status.step) body += StrCat(",\"step\":", *view->status.step);
  if (view->report != nullptr) {
    const double age = UnixSeconds() - view->report->report.snapshot_time_unix_seconds;
    if (std::isfinite(age)) {
      absl::StrAppendFormat(&body, ",\"report_age_seconds\":%.3f", std::max(age, 0.0));
    }
  }
  body += "}\n";
  const bool well = health == Health::kOk || health == Health::kStarting;
  return {.status = well ? 200 : 503, .content_type = "application/json", .body = std::move(body)};
}

class PrometheusExporterImpl final : public PrometheusExporter {
 public:
  ~PrometheusExporterImpl() override { Stop(std::chrono::seconds(2)); }

  absl::Status Bind(const Options& options) {
    auto server = HttpServer::Start(
        options.address,
        {{"/metrics",
          [this, max_layers = options.max_layers] { return Metrics(Look(), max_layers); }},
         {"/healthz", [this] { return Healthz(Look()); }}});
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    return absl::OkStatus();
  }

  std::string_view name() const override { return "prometheus"; }
  const std::string& address() const override { return server_->address(); }

  absl::Status Start(StatusSource* source, Control*) override {
    std::lock_guard<std::mutex> lock(mutex_);
    source_ = source;
    latest_ = source->latest();
    return absl::OkStatus();
  }

  void OnReport(std::shared_ptr<const AnalyzedReport> report) override {
    std::lock_guard<std::mutex> lock(mutex_);
    latest_ = std::move(report);
  }

  void Stop(std::chrono::milliseconds) override {
    if (server_ != nullptr) server_->Stop();
    std::lock_guard<std::mutex> lock(mutex_);
    source_ = nullptr;
  }

 private:
  // nullopt before Start. The lock is held for a copy only, never while a page is rendered, so
  // OnReport does not wait.
  std::optional<View> Look() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (source_ == nullptr) return std::nullopt;
    return View{source_->run(), source_->status(), latest_};
  }

  std::mutex mutex_;
  StatusSource* source_ = nullptr;
  std::shared_ptr<const AnalyzedReport> latest_;
  std::unique_ptr<HttpServer> server_;  // last: its threads end before what they use
};

}  // namespace

absl::StatusOr<std::unique_ptr<PrometheusExporter>> PrometheusExporter::Create(Options options) {
  if (options.max_layers < 0) {
    return absl::InvalidArgumentError(
        StrCat("max_layers must not be negative, is ", options.max_layers));
  }
  try {
    auto exporter = std::make_unique<PrometheusExporterImpl>();
    if (absl::Status status = exporter->Bind(options); !status.ok()) return status;
    return exporter;
  } catch (const std::exception& error) {
    return absl::InternalError(StrCat("http address '", options.address, "': ", error.what()));
  }
}

}  // namespace ptqwatch
