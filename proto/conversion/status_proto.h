#ifndef PTQWATCH_PROTO_CONVERSION_STATUS_PROTO_H_
#define PTQWATCH_PROTO_CONVERSION_STATUS_PROTO_H_

#include <string>

#include "ptqwatch/status.h"
#include "ptqwatch/v1/monitor_service.pb.h"

namespace ptqwatch::internal {

/// Clears the message and fills it with the status. Its fields are the members of RunStatus::run,
/// RunStatus::monitor and RunStatus itself, found by their names in status_fields.h. Texts become
/// valid UTF-8. Non-finite numbers are left out, and so are slices, cooldowns and servers that were
/// never requested.
void ToProto(const RunStatus& status, v1::GetStatusResponse* message);

/// Converts a message written by this or another version. Unknown enum values become the first of
/// their enum.
RunStatus FromProto(const v1::GetStatusResponse& message);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_CONVERSION_STATUS_PROTO_H_
