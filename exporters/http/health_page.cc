#include "http/health_page.h"

#include <algorithm>
#include <cmath>

#include "nlohmann/json.hpp"

namespace ptqwatch::internal {
namespace {

nlohmann::ordered_json HealthOf(const RunView& view) {
  nlohmann::ordered_json body;
  if (!view.status.name.empty()) body["run"] = view.status.name;
  body["health"] = ToString(view.status.monitor.health);
  if (!view.status.monitor.health_reason.empty())
    body["reason"] = view.status.monitor.health_reason;
  if (view.status.monitor.step) body["step"] = *view.status.monitor.step;
  if (std::isfinite(view.report_age_seconds)) {
    body["report_age_seconds"] = std::round(1e3 * view.report_age_seconds) / 1e3;
  }
  return body;
}

// A single run without a name is the whole page; named runs are listed.
HttpResponse HealthPage(const std::vector<RunView>& views, int status) {
  nlohmann::ordered_json body;
  if (views.empty()) {
    body["health"] = ToString(Health::kStarting);
  } else if (views[0].status.name.empty()) {
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

// A run with a name may be over. A run without a name has this server to itself, which is then not
// ready.
bool IsReady(const RunView& view) {
  const Health health = view.status.monitor.health;
  return view.open && (health == Health::kOk || health == Health::kStarting ||
                       (health == Health::kStopped && !view.status.name.empty()));
}

}  // namespace

HttpResponse HealthzPage(const std::vector<RunView>& views, bool details) {
  return details ? HealthPage(views, 200) : HttpResponse{.body = "alive\n"};
}

HttpResponse ReadyzPage(const std::vector<RunView>& views, bool details) {
  const bool ready = !views.empty() && std::all_of(views.begin(), views.end(), IsReady);
  const int status = ready ? 200 : 503;
  if (details) return HealthPage(views, status);
  return {.status = status, .body = ready ? "ready\n" : "not ready\n"};
}

}  // namespace ptqwatch::internal
