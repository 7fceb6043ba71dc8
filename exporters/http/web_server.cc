#include "http/web_server.h"

#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "http/health_page.h"
#include "http/host_guard.h"
#include "http/http_api.h"
#include "http/live_page.h"
#include "http/router.h"
#include "metrics/metric_page.h"
#include "security/check_security.h"

namespace ptqwatch::internal {
namespace {

// Makes a browser ask for a login.
HttpResponse LoginNeeded() {
  return {
      .status = 401,
      .body =
          "the token is missing or wrong: send 'Authorization: Bearer TOKEN', "
          "or log in with any user name and the token as the password\n",
      .headers = {{"WWW-Authenticate", "Basic realm=\"ptqwatch\""}, {"Cache-Control", "no-store"}}};
}

class WebServerImpl final : public WebServer {
 public:
  WebServerImpl(const Options& options, const ServedRuns* runs)
      : runs_(runs),
        metrics_(options.max_layers),
        token_(options.token),
        api_(runs, options.max_streams) {}

  absl::Status Bind(const Options& options) {
    const HostGuard guard(options.http.listen.address, options.allowed_hosts);
    PTQWATCH_ASSIGN_OR_RETURN(server_, HttpServer::Start(options.http, MakeRouter(Routes(guard))));
    return absl::OkStatus();
  }

  const std::string& address() const override { return server_->address(); }
  void Wake() override { server_->Wake(); }
  void Stop() override { server_->Stop(); }

 private:
  HttpRoutes Routes(const HostGuard& guard) {
    HttpRoutes routes = LivePageRoutes();
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
    // Not guarded by host: scrapers may use any name.
    routes["/metrics"] = [this](const HttpRequest& request) { return Metrics(request); };
    for (auto& [path, handler] : routes) {
      handler = [this, inner = std::move(handler)](const HttpRequest& request) {
        return Admits(request) ? inner(request) : LoginNeeded();
      };
    }
    // Not guarded by the token: a prober of the process need not know it.
    routes["/healthz"] = [this](const HttpRequest& request) {
      return HealthzPage(runs_->Look(), Admits(request));
    };
    routes["/readyz"] = [this](const HttpRequest& request) {
      return ReadyzPage(runs_->Look(), Admits(request));
    };
    return routes;
  }

  bool Admits(const HttpRequest& request) const {
    return token_.AdmitsLogin(request.authorization);
  }

  HttpResponse Metrics(const HttpRequest& request) {
    const std::vector<RunView> views = runs_->Look();
    if (views.empty()) return {.status = 503, .body = "there is no run yet\n"};
    std::vector<RunMetrics> runs;
    for (const RunView& view : views) {
      runs.push_back({view.status.name,
                      {view.status.run, view.status.monitor, view.report.get(),
                       view.status.time_unix_seconds}});
    }
    const MetricFormat format = MetricFormatFor(request.accept);
    return {.content_type = std::string(ContentTypeOf(format)),
            .body = metrics_.Render(runs, format)};
  }

  const ServedRuns* const runs_;
  MetricPage metrics_;
  const BearerToken token_;
  HttpApi api_;
  std::unique_ptr<HttpServer> server_;  // last: its thread uses the members above
};

}  // namespace

absl::StatusOr<std::unique_ptr<WebServer>> WebServer::Start(Options options,
                                                            const ServedRuns* runs) {
  auto server = std::make_unique<WebServerImpl>(options, runs);
  PTQWATCH_RETURN_IF_ERROR(server->Bind(options));
  return server;
}

}  // namespace ptqwatch::internal
