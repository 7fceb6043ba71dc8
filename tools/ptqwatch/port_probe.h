#ifndef PTQWATCH_TOOLS_PTQWATCH_PORT_PROBE_H_
#define PTQWATCH_TOOLS_PTQWATCH_PORT_PROBE_H_

#include <chrono>

#include "address.h"

namespace ptqwatch::internal {

/// Whether what listens there answers a plain HTTP/1 request: a web server, such as a trainer's
/// /metrics, and no gRPC server. Takes `limit` at most, apart from looking the host name up.
bool SpeaksHttp1(const ServerAddress& address,
                 std::chrono::milliseconds limit = std::chrono::milliseconds(800));

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_PORT_PROBE_H_
