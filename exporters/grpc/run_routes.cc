#include "run_routes.h"

#include <algorithm>
#include <chrono>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

bool HasEnded(const RunRoutes::Pointer& route) {
  return route->feed.WaitUntilNobodyWatches(std::chrono::steady_clock::now());
}

absl::Status CheckServing(const RunRoute& route) {
  const grpc::Status status = route.feed.CheckServing();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

std::string NameOf(const RunRoute& route) {
  return StrCat("'", ValidUtf8(route.run.empty() ? route.source->run().run_id : route.run), "'");
}

}  // namespace

absl::StatusOr<RunRoutes::Pointer> RunRoutes::Add(const std::string& run,
                                                  const ReportFeed::Limits& limits) {
  auto route = std::make_shared<RunRoute>(run, limits);
  MutexLock lock(mutex_);
  std::erase_if(removed_, HasEnded);
  const auto place = std::lower_bound(
      routes_.begin(), routes_.end(), run,
      [](const Pointer& known, const std::string& name) { return known->run < name; });
  if (place != routes_.end() && (*place)->run == run) {
    return absl::AlreadyExistsError(StrCat("there is a run '", run, "' already"));
  }
  routes_.insert(place, route);
  return route;
}

void RunRoutes::Remove(const Pointer& route) {
  MutexLock lock(mutex_);
  if (std::erase(routes_, route) > 0) removed_.push_back(route);
}

absl::StatusOr<RunRoutes::Pointer> RunRoutes::Find(const std::string& run_id) const {
  std::vector<Pointer> routes;
  {
    MutexLock lock(mutex_);
    routes = routes_;
  }
  if (routes.empty()) return absl::UnavailableError("the monitor has stopped");
  if (routes.size() == 1) {
    if (absl::Status status = CheckServing(*routes[0]); !status.ok()) return status;
  }
  if (routes.size() == 1 && run_id.empty()) return routes[0];
  std::vector<std::string> names;
  for (const Pointer& route : routes) {
    const absl::Status serving = CheckServing(*route);
    if (route->run == run_id && !run_id.empty()) {
      if (!serving.ok()) return serving;
      return route;
    }
    if (!serving.ok()) continue;
    if (!run_id.empty() && ValidUtf8(route->source->run().run_id) == run_id) return route;
    names.push_back(NameOf(*route));
  }
  const std::string known = absl::StrJoin(names, ", ");
  if (run_id.empty()) {
    return absl::InvalidArgumentError(
        StrCat(routes.size(), " runs are served here, so name one: ", known));
  }
  return absl::NotFoundError(StrCat("no run '", run_id, "' here, only ", known));
}

std::vector<RunRoutes::Pointer> RunRoutes::All() const {
  std::vector<Pointer> routes;
  {
    MutexLock lock(mutex_);
    routes = routes_;
  }
  std::erase_if(routes, [](const Pointer& route) { return !CheckServing(*route).ok(); });
  return routes;
}

}  // namespace ptqwatch::internal
