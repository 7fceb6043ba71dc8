#ifndef PTQWATCH_PROTO_EVENT_PROTO_H_
#define PTQWATCH_PROTO_EVENT_PROTO_H_

#include "ptqwatch/event.h"
#include "ptqwatch/v1/monitor_service.pb.h"

namespace ptqwatch::internal {

/// Clears `message` and fills it with the event, except `number`, which stays 0. Bytes that are not
/// UTF-8 become U+FFFD.
void ToProto(const Event& event, v1::Event* message);

/// Converts a message written by this or another version. An unknown kind or severity becomes the
/// first of its enum.
Event FromProto(const v1::Event& message);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_EVENT_PROTO_H_
