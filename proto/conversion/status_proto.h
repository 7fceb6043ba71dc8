#ifndef PTQWATCH_PROTO_CONVERSION_STATUS_PROTO_H_
#define PTQWATCH_PROTO_CONVERSION_STATUS_PROTO_H_

#include <string>

#include "ptqwatch/status.h"
#include "ptqwatch/v1/monitor_service.pb.h"

namespace ptqwatch::internal {

/// Fills the message (cleared first). Its fields are the members of RunStatus::run and
/// RunStatus::monitor, by their names in status_fields.h, beside those of RunStatus itself. Texts
/// become valid UTF-8; numbers that are not finite are left out, and so is work never asked for.
void ToProto(const RunStatus& status, v1::GetStatusResponse* message);

/// What ToProto wrote, by this or another version. Enum values of a later version read as the first
/// of their enum.
RunStatus FromProto(const v1::GetStatusResponse& message);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_CONVERSION_STATUS_PROTO_H_
