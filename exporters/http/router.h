#ifndef PTQWATCH_HTTP_ROUTER_H_
#define PTQWATCH_HTTP_ROUTER_H_

#include <map>
#include <string>

#include "http/http_message.h"

namespace ptqwatch::internal {

using HttpRoutes = std::map<std::string, HttpHandler>;

/// Makes a handler that passes GET and HEAD to the handler of the exact path and answers everything
/// else with 404 or 405. An exception in a handler becomes a 500. Compresses bodies for clients
/// that accept it, and adds the headers common to all answers.
HttpHandler MakeRouter(HttpRoutes routes);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_ROUTER_H_
