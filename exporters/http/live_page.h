#ifndef PTQWATCH_HTTP_LIVE_PAGE_H_
#define PTQWATCH_HTTP_LIVE_PAGE_H_

#include "http/router.h"

namespace ptqwatch::internal {

/// The routes of the live page: "/" and the files it is made of. They do not change while the
/// program runs, so each is compressed once and a browser that has it is told so (ETag). The page
/// asks for nothing but these and the HTTP API, and may not: Content-Security-Policy.
HttpRoutes LivePageRoutes();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_LIVE_PAGE_H_
