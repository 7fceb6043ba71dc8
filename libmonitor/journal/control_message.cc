#include "journal/control_message.h"

#include <optional>
#include <utility>

#include "base/enum_names.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "report/json_fields.h"
#include "report/status_fields.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kCommandNames[] = {"snapshot", "pause",    "resume",         "every",
                                              "slice",    "cooldown", "cancel_cooldown"};

// A message is cut, never refused, for its length.
constexpr size_t kMaxMessage = 2000;

struct WireRequest {
  std::string command;
  int64_t every = 0;
  std::optional<SliceRequest> slice;
  int64_t decay_steps = 0;
};

template <Of<WireRequest> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("command", record.command);
  visit("every", record.every);
  visit("slice", record.slice);
  visit("decay_steps", record.decay_steps);
}

struct WireResponse {
  int code = -1;
  std::string message;
  int64_t number = 0;
};

template <Of<WireResponse> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("code", record.code);
  visit("message", record.message);
  visit("number", record.number);
}

template <typename Wire>
std::string Dump(const Wire& wire) {
  return JsonWriter::Write(wire)->dump(-1, ' ', false, WrittenJson::error_handler_t::replace);
}

template <typename Wire>
absl::StatusOr<Wire> Read(std::string_view what, std::string_view line) {
  return Guard(what, absl::StatusCode::kInvalidArgument, [&]() -> absl::StatusOr<Wire> {
    PTQWATCH_ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseJson(what, line));
    return ReadRecord<Wire>(what, parsed);
  });
}

}  // namespace

std::string RequestToJson(const ControlRequest& request) {
  WireRequest wire{.command = std::string(EnumName(kCommandNames, request.kind)),
                   .every = request.every,
                   .slice = std::nullopt,
                   .decay_steps = request.decay_steps};
  if (request.kind == ControlRequest::Kind::kSlice) wire.slice = request.slice;
  return Dump(wire);
}

std::string ResponseToJson(const ControlResponse& response) {
  const std::string message(Message(response.status()));
  return Dump(WireResponse{.code = static_cast<int>(response.status().code()),
                           .message = message.substr(0, kMaxMessage),
                           .number = response.ok() ? *response : 0});
}

absl::StatusOr<ControlRequest> RequestFromJson(std::string_view line) {
  PTQWATCH_ASSIGN_OR_RETURN(const WireRequest wire, Read<WireRequest>("control request", line));
  const auto kind = EnumValue<ControlRequest::Kind>(kCommandNames, wire.command);
  if (!kind) return UnknownName("command", kCommandNames, wire.command);
  return ControlRequest{.kind = *kind,
                        .every = wire.every,
                        .slice = wire.slice.value_or(SliceRequest()),
                        .decay_steps = wire.decay_steps};
}

ControlResponse ResponseFromJson(std::string_view line) {
  const absl::StatusOr<WireResponse> wire = Read<WireResponse>("control response", line);
  constexpr int kLastCode = static_cast<int>(absl::StatusCode::kUnauthenticated);
  if (!wire.ok() || wire->code < 0 || wire->code > kLastCode) {
    return absl::InternalError("the run gave no answer that can be read");
  }
  if (wire->code == 0) return wire->number;
  return absl::Status(static_cast<absl::StatusCode>(wire->code), wire->message);
}

ControlResponse Apply(const ControlRequest& request, Control& control) {
  absl::Status status;
  switch (request.kind) {
    case ControlRequest::Kind::kSnapshot:
      status = control.RequestSnapshot();
      break;
    case ControlRequest::Kind::kPause:
      status = control.Pause();
      break;
    case ControlRequest::Kind::kResume:
      status = control.Resume();
      break;
    case ControlRequest::Kind::kEvery:
      status = control.SetEvery(request.every);
      break;
    case ControlRequest::Kind::kSlice:
      return control.RequestSlice(request.slice);
    case ControlRequest::Kind::kCooldown:
      return control.RequestCooldown({.decay_steps = request.decay_steps});
    case ControlRequest::Kind::kCancelCooldown:
      status = control.CancelCooldown();
      break;
  }
  if (!status.ok()) return status;
  return 0;
}

}  // namespace ptqwatch::internal
