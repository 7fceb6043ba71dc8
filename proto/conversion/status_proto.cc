#include "status_proto.h"

#include "base/utf8.h"
#include "message_fields.h"
#include "report/status_fields.h"

namespace ptqwatch::internal {

void ToProto(const RunStatus& status, v1::GetStatusResponse* message) {
  message->Clear();
  VisitFields(status, MessageWriter(message));
  message->set_run(ValidUtf8(status.name));  // the record's own "run" is RunInfo
  if (status.monitor.slice.state == SliceState::kNone) message->clear_slice();
  if (status.monitor.cooldown.state == CooldownState::kNone) message->clear_cooldown();
  if (status.monitor.server.state == ServerState::kNone) message->clear_server();
  if (status.monitor.replicas.compared_step == 0) message->clear_replicas();
}

RunStatus FromProto(const v1::GetStatusResponse& message) {
  RunStatus status;
  VisitFields(status, MessageReader(message));
  status.name = message.run();
  return status;
}

}  // namespace ptqwatch::internal
