#include "ptqwatch/prometheus_hub.h"

#include <utility>

#include "absl/status/status.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "http_server.h"
#include "run_views.h"

namespace ptqwatch {
namespace {

using internal::HttpServer;
using internal::StrCat;

class PrometheusHubImpl final : public PrometheusHub {
 public:
  ~PrometheusHubImpl() override { Stop(); }

  absl::Status Bind(const PrometheusOptions& options) {
    PTQWATCH_ASSIGN_OR_RETURN(
        server_,
        HttpServer::Start(
            {.kind = "http",
             .address = options.address,
             .allow_remote = options.allow_remote,
             .allow_remote_option = "PrometheusOptions::allow_remote"},
            {{"/metrics",
              [this, max_layers = options.max_layers] { return views_.Metrics(max_layers); }},
             {"/healthz", [this] { return views_.Healthz(); }},
             {"/readyz", [this] { return views_.Readyz(); }}}));
    return absl::OkStatus();
  }

  const std::string& address() const override { return server_->address(); }
  absl::StatusOr<std::unique_ptr<Exporter>> AddRun(const std::string& run) override {
    return views_.Add(run);
  }
  void Stop() override {
    if (server_ != nullptr) server_->Stop();
  }

 private:
  internal::RunViews views_;
  std::unique_ptr<HttpServer> server_;  // last: its threads end before what they use is destroyed
};

}  // namespace

absl::StatusOr<std::unique_ptr<PrometheusHub>> PrometheusHub::Create(PrometheusOptions options) {
  if (options.max_layers < 0) {
    return absl::InvalidArgumentError(
        StrCat("PrometheusOptions::max_layers must not be negative, is ", options.max_layers));
  }
  return internal::Guard(StrCat("http address '", options.address, "'"),
                         absl::StatusCode::kInternal,
                         [&]() -> absl::StatusOr<std::unique_ptr<PrometheusHub>> {
                           auto bound = std::make_unique<PrometheusHubImpl>();
                           PTQWATCH_RETURN_IF_ERROR(bound->Bind(options));
                           return bound;
                         });
}

}  // namespace ptqwatch
