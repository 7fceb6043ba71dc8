#ifndef PTQWATCH_HTTP_HTTP_API_H_
#define PTQWATCH_HTTP_HTTP_API_H_

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "feed/served_runs.h"
#include "http/http_message.h"

namespace ptqwatch::internal {

/// The HTTP API for programs and the live page (docs/api.md). If a request cannot be answered, the
/// body is {"error": "..."} with the name and value of the parameter. Not thread-safe.
class HttpApi {
 public:
  /// `runs` must outlive this object and all streams.
  HttpApi(const ServedRuns* runs, size_t max_streams) : runs_(runs), max_streams_(max_streams) {}

  /// /api/v1/reports?after=SEQUENCE[&limit=N][&layers=1 | &series=1][&run=NAME]
  HttpResponse Reports(const HttpRequest& request) const;
  /// /api/v1/status[?run=NAME]
  HttpResponse Status(const HttpRequest& request) const;
  /// /api/v1/events[?after=SEQUENCE][&after_event=NUMBER][&layers=1][&run=NAME]
  HttpResponse Events(const HttpRequest& request);

 private:
  absl::StatusOr<HttpResponse> Stream(const HttpRequest& request);
  // The status for streams, cached for up to 250 ms.
  std::string StatusOf(const std::string& run);

  const ServedRuns* const runs_;
  const size_t max_streams_;
  std::shared_ptr<const bool> open_ = std::make_shared<bool>();  // each stream has a copy
  std::map<std::string, std::pair<std::chrono::nanoseconds, std::string>> statuses_;
};

/// The run's entry in the answer of /api/v1/status.
std::string RunStatusJson(const RunView& view);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_HTTP_API_H_
