#include "status_response_json.h"

#include "absl/status/status.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "status_proto.h"

namespace ptqwatch::internal {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using nlohmann::json;

// Protobuf writes 64-bit integers as JSON strings.
void WriteIntegersAsNumbers(const Descriptor& type, json& object);

void WriteIntegersAsNumbers(const FieldDescriptor& field, json& value) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64 && value.is_string()) {
    value = std::stoll(value.get<std::string>());
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    WriteIntegersAsNumbers(*field.message_type(), value);
  }
}

void WriteIntegersAsNumbers(const Descriptor& type, json& object) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const auto found = object.find(field.name());
    if (found == object.end()) continue;
    if (!field.is_repeated()) {
      WriteIntegersAsNumbers(field, *found);
      continue;
    }
    const FieldDescriptor& element =
        field.is_map() ? *field.message_type()->FindFieldByName("value") : field;
    for (json& value : *found) WriteIntegersAsNumbers(element, value);
  }
}

}  // namespace

absl::StatusOr<std::string> StatusResponseJson(const RunStatus& status) {
  v1::GetStatusResponse message;
  ToProto(status, &message);
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!printed.ok()) return absl::InternalError(printed.ToString());
  json line = json::parse(text);
  WriteIntegersAsNumbers(*message.GetDescriptor(), line);
  // Keys kept from earlier versions.
  line["every_steps"] = status.monitor.every;
  line["drops"] = line["dropped_reports"];
  int64_t dropped = 0;
  for (const DroppedReports& drop : status.monitor.dropped_reports) dropped += drop.count;
  line["dropped_reports"] = dropped;
  return line.dump(-1, ' ', /*ensure_ascii=*/true);
}

}  // namespace ptqwatch::internal
