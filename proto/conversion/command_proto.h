#ifndef PTQWATCH_PROTO_CONVERSION_COMMAND_PROTO_H_
#define PTQWATCH_PROTO_CONVERSION_COMMAND_PROTO_H_

#include "absl/status/statusor.h"
#include "ptqwatch/control.h"
#include "ptqwatch/v1/monitor_service.pb.h"

namespace ptqwatch::internal {

/// Sets the command of the request and leaves its run_id unchanged.
void ToProto(const Command& command, v1::DoRequest* request);

/// Returns the command of the request. InvalidArgument if it has none, or one of a later version.
absl::StatusOr<Command> FromProto(const v1::DoRequest& request);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_CONVERSION_COMMAND_PROTO_H_
