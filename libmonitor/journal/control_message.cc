#include "journal/control_message.h"

#include <optional>
#include <utility>

#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "report/command_fields.h"
#include "report/json_fields.h"

namespace ptqwatch::internal {
namespace {

// Longer messages are cut, so that every answer fits a line.
constexpr size_t kMaxMessage = 2000;

struct Answer {
  int code = -1;
  std::string message;
  int64_t number = 0;
};

template <Of<Answer> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("code", record.code);
  visit("message", record.message);
  visit("number", record.number);
}

absl::StatusOr<Command> ReadCommand(std::string_view line) {
  constexpr std::string_view kWhat = "control request";
  PTQWATCH_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(kWhat, line));
  std::string name;
  absl::Status failure;
  JsonReader reader(json, "", failure);
  reader("command", name);
  std::optional<Command> command = CommandNamed(name);
  if (failure.ok() && !command) {
    return absl::InvalidArgumentError(StrCat(kWhat, ": unknown command '", name, "'"));
  }
  if (command) std::visit([&](auto& one) { VisitFields(one, reader); }, *command);
  if (!failure.ok()) return absl::InvalidArgumentError(StrCat(kWhat, ": ", failure));
  return *std::move(command);
}

absl::StatusOr<Answer> ReadAnswer(std::string_view line) {
  PTQWATCH_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson("answer", line));
  return ReadRecord<Answer>("answer", json);
}

}  // namespace

std::string CommandToJson(const Command& command) {
  JsonWriter writer;
  writer("command", std::string(EntryOf(command).name));
  std::visit([&](const auto& one) { VisitFields(one, writer); }, command);
  return JsonText(writer.object);
}

std::string AnswerToJson(const absl::StatusOr<int64_t>& answer) {
  const std::string message(Message(answer.status()));
  return JsonText(*JsonWriter::Write(Answer{.code = static_cast<int>(answer.status().code()),
                                            .message = message.substr(0, kMaxMessage),
                                            .number = answer.ok() ? *answer : 0}));
}

absl::StatusOr<Command> CommandFromJson(std::string_view line) {
  return Guard("control request", absl::StatusCode::kInvalidArgument,
               [&] { return ReadCommand(line); });
}

absl::StatusOr<int64_t> AnswerFromJson(std::string_view line) {
  const absl::StatusOr<Answer> answer =
      Guard("answer", absl::StatusCode::kInvalidArgument, [&] { return ReadAnswer(line); });
  constexpr int kLastCode = static_cast<int>(absl::StatusCode::kUnauthenticated);
  if (!answer.ok() || answer->code < 0 || answer->code > kLastCode) {
    return absl::InternalError("the answer of the run cannot be read");
  }
  if (answer->code == 0) return answer->number;
  return absl::Status(static_cast<absl::StatusCode>(answer->code), answer->message);
}

}  // namespace ptqwatch::internal
