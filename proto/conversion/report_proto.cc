#include "report_proto.h"

#include "message_fields.h"
#include "report/report_fields.h"

namespace ptqwatch::internal {

void ToProto(const AnalyzedReport& report, v1::Report* message, bool with_layers) {
  message->Clear();
  VisitFields(report, MessageWriter(message, with_layers));
}

AnalyzedReport FromProto(const v1::Report& message) {
  AnalyzedReport report;
  VisitFields(report, MessageReader(message));
  return report;
}

}  // namespace ptqwatch::internal
