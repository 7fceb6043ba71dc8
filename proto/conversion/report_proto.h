#ifndef PTQWATCH_PROTO_REPORT_PROTO_H_
#define PTQWATCH_PROTO_REPORT_PROTO_H_

#include "ptqwatch/report.h"
#include "ptqwatch/v1/report.pb.h"

namespace ptqwatch::internal {

/// Clears `message` and fills it with the report. Fields are those of VisitFields, found by name,
/// so a new member needs a line there and one in report.proto, but none here. As in ToJson,
/// non-finite values are absent and bytes that are not UTF-8 become U+FFFD. Without layers,
/// `quantization[].layers`, `curvature.layers`, `skipped_layers` and `parameter_digests` stay
/// empty. Cost: about a millisecond for 200 layers and four quantizers, because of protobuf's
/// reflection.
void ToProto(const AnalyzedReport& report, v1::Report* message, bool with_layers);

/// Converts a message written by this or another version. Unknown enum values become the unknown
/// value of their enum.
AnalyzedReport FromProto(const v1::Report& message);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_REPORT_PROTO_H_
