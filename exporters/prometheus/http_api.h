#ifndef PTQWATCH_PROMETHEUS_HTTP_API_H_
#define PTQWATCH_PROMETHEUS_HTTP_API_H_

#include "event_streams.h"
#include "http_message.h"
#include "run_views.h"

namespace ptqwatch::internal {

/// What programs and the live page read: docs/operations.md, "HTTP API". A request that cannot be
/// answered gets {"error": "..."}, which names the parameter and its value. Thread-safe.
class HttpApi {
 public:
  /// Both must outlive this.
  HttpApi(const RunViews* views, EventStreams* streams) : views_(views), streams_(streams) {}

  /// /api/v1/reports?after=SEQUENCE[&limit=N][&layers=1 | &series=1][&run=NAME]
  HttpResponse Reports(const HttpRequest& request) const;
  /// /api/v1/status[?run=NAME]
  HttpResponse Status(const HttpRequest& request) const;
  /// /api/v1/events[?after=SEQUENCE][&after_event=NUMBER][&layers=1][&run=NAME]
  HttpResponse Events(const HttpRequest& request) const;

 private:
  const RunViews* const views_;
  EventStreams* const streams_;
};

/// The run's entry in the answer of /api/v1/status.
std::string RunStatusJson(const RunView& view);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROMETHEUS_HTTP_API_H_
