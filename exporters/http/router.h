#ifndef PTQWATCH_HTTP_ROUTER_H_
#define PTQWATCH_HTTP_ROUTER_H_

#include <map>
#include <string>

#include "http/http_message.h"

namespace ptqwatch::internal {

using HttpRoutes = std::map<std::string, HttpHandler>;

/// Answers GET and HEAD by the handler of the exact path, and everything else by 404 or 405; what a
/// handler throws becomes 500. Compresses bodies for clients that ask, and adds the headers that
/// all answers have.
HttpHandler MakeRouter(HttpRoutes routes);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_ROUTER_H_
