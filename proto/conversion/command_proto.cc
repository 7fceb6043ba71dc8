#include "command_proto.h"

#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "base/strings.h"
#include "message_fields.h"
#include "report/command_fields.h"

namespace ptqwatch::internal {
namespace {

// The fields of this oneof are named after the commands.
const google::protobuf::OneofDescriptor& CommandField() {
  return *v1::DoRequest::descriptor()->FindOneofByName("command");
}

}  // namespace

void ToProto(const Command& command, v1::DoRequest* request) {
  const FieldDescriptor* field =
      v1::DoRequest::descriptor()->FindFieldByName(std::string(EntryOf(command).name));
  if (field == nullptr) return;  // a test catches this
  google::protobuf::Message* message = request->GetReflection()->MutableMessage(request, field);
  std::visit([&](const auto& one) { VisitFields(one, MessageWriter(message)); }, command);
}

absl::StatusOr<Command> FromProto(const v1::DoRequest& request) {
  const google::protobuf::Reflection& reflection = *request.GetReflection();
  const FieldDescriptor* field = reflection.GetOneofFieldDescriptor(request, &CommandField());
  if (field == nullptr) {
    return absl::InvalidArgumentError("the request has no command known to this server");
  }
  std::optional<Command> command = CommandNamed(field->name());
  if (!command) return absl::InvalidArgumentError(StrCat("unknown command ", field->name()));
  bool unknown_name = false;
  const MessageReader reader(reflection.GetMessage(request, field), &unknown_name);
  std::visit([&](auto& one) { VisitFields(one, MessageReader(reader)); }, *command);
  if (unknown_name) {
    return absl::InvalidArgumentError(StrCat(
        field->name(),
        " has an unknown value: ", reflection.GetMessage(request, field).ShortDebugString()));
  }
  return *command;
}

}  // namespace ptqwatch::internal
