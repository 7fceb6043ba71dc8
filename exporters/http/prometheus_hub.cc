#include "ptqwatch/prometheus_hub.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "feed/run_views.h"
#include "http/health_page.h"
#include "http/host_guard.h"
#include "http/http_api.h"
#include "http/live_page.h"
#include "http/login_guard.h"
#include "http/router.h"
#include "http/server/http_server.h"
#include "metrics/metric_page.h"
#include "security/check_security.h"

namespace ptqwatch {
namespace {

using internal::HostGuard;
using internal::HttpApi;
using internal::HttpRequest;
using internal::HttpResponse;
using internal::HttpRoutes;
using internal::HttpServer;
using internal::RunView;
using internal::StrCat;

internal::ReportHistory::Limits HistoryLimits(const PrometheusOptions& options) {
  return {.reports = static_cast<size_t>(options.history_reports),
          .bytes = options.history_bytes,
          .memory_bytes = options.history_memory_bytes};
}

absl::Status Check(const PrometheusOptions& options) {
  const auto at_least = [](std::string_view name, int64_t least, int64_t value) {
    return value >= least
               ? absl::OkStatus()
               : absl::InvalidArgumentError(StrCat("PrometheusOptions::", name,
                                                   " must be at least ", least, ", is ", value));
  };
  PTQWATCH_RETURN_IF_ERROR(at_least("max_layers", 0, options.max_layers));
  PTQWATCH_RETURN_IF_ERROR(at_least("max_streams", 0, options.max_streams));
  PTQWATCH_RETURN_IF_ERROR(at_least("history_reports", 1, options.history_reports));
  PTQWATCH_RETURN_IF_ERROR(at_least("history_bytes", 1, options.history_bytes));
  return at_least("history_memory_bytes", 1, options.history_memory_bytes);
}

class PrometheusHubImpl final : public PrometheusHub {
 public:
  PrometheusHubImpl(const PrometheusOptions& options, internal::BearerToken token)
      : metrics_(options.max_layers),
        login_(std::move(token)),
        views_(HistoryLimits(options), [this] { server_->Wake(); }),
        api_(&views_, static_cast<size_t>(options.max_streams)) {}

  absl::Status Bind(const PrometheusOptions& options) {
    const HostGuard guard(options.address, options.allowed_hosts);
    PTQWATCH_ASSIGN_OR_RETURN(
        server_,
        HttpServer::Start({.listen = {.kind = "http",
                                      .address = options.address,
                                      .allow_remote = options.allow_remote,
                                      .allow_remote_option = "PrometheusOptions::allow_remote"},
                           .security = options.security},
                          internal::MakeRouter(Routes(guard))));
    return absl::OkStatus();
  }

  const std::string& address() const override { return server_->address(); }
  absl::StatusOr<std::unique_ptr<Exporter>> AddRun(const std::string& run) override {
    return views_.Add(run);
  }
  void Stop() override { server_->Stop(); }

 private:
  HttpRoutes Routes(const HostGuard& guard) {
    HttpRoutes routes = internal::LivePageRoutes();
    routes["/api/v1/reports"] = [this](const HttpRequest& request) {
      return api_.Reports(request);
    };
    routes["/api/v1/status"] = [this](const HttpRequest& request) { return api_.Status(request); };
    routes["/api/v1/events"] = [this](const HttpRequest& request) { return api_.Events(request); };
    for (auto& [path, handler] : routes) {
      handler = [guard, inner = std::move(handler)](const HttpRequest& request) {
        std::optional<HttpResponse> refusal = guard.Refuse(request);
        return refusal ? *std::move(refusal) : inner(request);
      };
    }
    // Scrapers and probes use whatever names their configuration gives.
    routes["/metrics"] = [this](const HttpRequest& request) { return Metrics(request); };
    for (auto& [path, handler] : routes) {
      handler = [this, inner = std::move(handler)](const HttpRequest& request) {
        std::optional<HttpResponse> refusal = login_.Refuse(request);
        return refusal ? *std::move(refusal) : inner(request);
      };
    }
    // Whoever probes a process need not have its secrets.
    routes["/healthz"] = [this](const HttpRequest& request) {
      return internal::HealthzPage(views_.Look(), login_.Admits(request));
    };
    routes["/readyz"] = [this](const HttpRequest& request) {
      return internal::ReadyzPage(views_.Look(), login_.Admits(request));
    };
    return routes;
  }

  HttpResponse Metrics(const HttpRequest& request) {
    const std::vector<RunView> views = views_.Look();
    if (views.empty()) return {.status = 503, .body = "the monitor is not running\n"};
    std::vector<internal::RunMetrics> runs;
    for (const RunView& view : views) {
      runs.push_back({view.run, {view.info, view.status, view.report.get()}});
    }
    const internal::MetricFormat format = internal::MetricFormatFor(request.accept);
    return {.content_type = std::string(internal::ContentTypeOf(format)),
            .body = metrics_.Render(runs, format)};
  }

  internal::MetricPage metrics_;
  const internal::LoginGuard login_;
  internal::RunViews views_;
  HttpApi api_;
  std::unique_ptr<HttpServer> server_;  // last: its thread ends before what it uses is destroyed
};

}  // namespace

absl::StatusOr<std::unique_ptr<PrometheusHub>> PrometheusHub::Create(PrometheusOptions options) {
  PTQWATCH_RETURN_IF_ERROR(Check(options));
  PTQWATCH_ASSIGN_OR_RETURN(
      internal::BearerToken token,
      internal::CheckSecurity(options.security, "PrometheusOptions", options.allow_remote));
  return internal::Guard(
      StrCat("http address '", options.address, "'"), absl::StatusCode::kInternal,
      [&]() -> absl::StatusOr<std::unique_ptr<PrometheusHub>> {
        auto bound = std::make_unique<PrometheusHubImpl>(options, std::move(token));
        PTQWATCH_RETURN_IF_ERROR(bound->Bind(options));
        return bound;
      });
}

}  // namespace ptqwatch
