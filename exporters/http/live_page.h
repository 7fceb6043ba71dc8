#ifndef PTQWATCH_HTTP_LIVE_PAGE_H_
#define PTQWATCH_HTTP_LIVE_PAGE_H_

#include "http/router.h"

namespace ptqwatch::internal {

/// The routes of the live page: "/" and its files. The files do not change while the program runs,
/// so each is compressed once and has an ETag for browser caches. The page loads only these files
/// and the HTTP API; its Content-Security-Policy forbids anything else.
HttpRoutes LivePageRoutes();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_LIVE_PAGE_H_
