#ifndef PTQWATCH_PROTO_CONVERSION_STATUS_PROTO_H_
#define PTQWATCH_PROTO_CONVERSION_STATUS_PROTO_H_

#include "ptqwatch/status.h"
#include "ptqwatch/v1/monitor_service.pb.h"

namespace ptqwatch::internal {

/// Sets what is known of a run and its monitor. The server's own members (run, last_sequence,
/// subscribers) stay as they are. Texts become valid UTF-8; numbers that are not finite are left
/// out.
void ToProto(const RunInfo& run, const MonitorStatus& status, v1::GetStatusResponse* response);

/// What ToProto wrote, by this or another version; members that are not in the message keep their
/// values. Health, phase, slice state and method of a later version read as the first of their
/// enum, what became of snapshots as nothing.
void FromProto(const v1::GetStatusResponse& response, RunInfo* run, MonitorStatus* status);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_CONVERSION_STATUS_PROTO_H_
