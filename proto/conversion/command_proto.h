#ifndef PTQWATCH_PROTO_CONVERSION_COMMAND_PROTO_H_
#define PTQWATCH_PROTO_CONVERSION_COMMAND_PROTO_H_

#include "absl/status/statusor.h"
#include "ptqwatch/control.h"
#include "ptqwatch/v1/monitor_service.pb.h"

namespace ptqwatch::internal {

/// Sets the command of the request; its run stays as it is.
void ToProto(const Command& command, v1::DoRequest* request);

/// InvalidArgument if the request has no command, or one of a later version.
absl::StatusOr<Command> FromProto(const v1::DoRequest& request);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_CONVERSION_COMMAND_PROTO_H_
