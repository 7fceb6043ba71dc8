#ifndef PTQWATCH_HTTP_HEALTH_PAGE_H_
#define PTQWATCH_HTTP_HEALTH_PAGE_H_

#include <vector>

#include "feed/served_runs.h"
#include "http/http_message.h"

namespace ptqwatch::internal {

/// Always 200: the process is alive if it answers. A failed measurement must not make an
/// orchestrator restart the process, which would end a training run. Without `details`, which
/// clients without the token do not get, the page says nothing about the runs.
HttpResponse HealthzPage(const std::vector<RunView>& views, bool details);
/// 200 if every run is measuring, about to measure or, if it has a name, over; else 503.
HttpResponse ReadyzPage(const std::vector<RunView>& views, bool details);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_HEALTH_PAGE_H_
