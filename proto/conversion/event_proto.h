#ifndef PTQWATCH_PROTO_EVENT_PROTO_H_
#define PTQWATCH_PROTO_EVENT_PROTO_H_

#include "ptqwatch/event.h"
#include "ptqwatch/v1/monitor_service.pb.h"

namespace ptqwatch::internal {

/// Fills `message` (cleared first) with the event; its `number` stays 0. Bytes that are not UTF-8
/// become U+FFFD.
void ToProto(const Event& event, v1::Event* message);

/// What ToProto wrote, by this or another version: a kind or severity that is not known here reads
/// as the first of its enum.
Event FromProto(const v1::Event& message);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_EVENT_PROTO_H_
