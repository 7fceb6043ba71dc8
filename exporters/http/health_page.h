#ifndef PTQWATCH_HTTP_HEALTH_PAGE_H_
#define PTQWATCH_HTTP_HEALTH_PAGE_H_

#include <vector>

#include "feed/served_runs.h"
#include "http/http_message.h"

namespace ptqwatch::internal {

/// Always 200: the process is alive, or it would not answer. Whoever restarts it for a measurement
/// that failed ends a training run. Without `details` nothing is said of the runs: for those who
/// have not logged in.
HttpResponse HealthzPage(const std::vector<RunView>& views, bool details);
/// 200 while each run measures, is about to or, in another process, is over; else 503.
HttpResponse ReadyzPage(const std::vector<RunView>& views, bool details);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_HEALTH_PAGE_H_
