#ifndef PTQWATCH_PROMETHEUS_LIVE_PAGE_H_
#define PTQWATCH_PROMETHEUS_LIVE_PAGE_H_

#include <map>
#include <string>

#include "http_responder.h"

namespace ptqwatch::internal {

/// The routes of the live page: "/" and the files it is made of. They do not change while the
/// program runs, so each is compressed once and a browser that has it is told so (ETag). The page
/// asks for nothing but these and the HTTP API, and may not: Content-Security-Policy.
std::map<std::string, HttpResponder::Handler> LivePageRoutes();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROMETHEUS_LIVE_PAGE_H_
