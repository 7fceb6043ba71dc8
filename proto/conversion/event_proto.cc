#include "event_proto.h"

#include "message_fields.h"
#include "report/report_fields.h"

namespace ptqwatch::internal {

void ToProto(const Event& event, v1::Event* message) {
  message->Clear();
  VisitFields(event, MessageWriter(message));
}

Event FromProto(const v1::Event& message) {
  Event event;
  VisitFields(event, MessageReader(message));
  return event;
}

}  // namespace ptqwatch::internal
