#include "event_proto.h"

#include <string_view>

#include "absl/strings/ascii.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kKindPrefix = "EVENT_KIND_";
constexpr std::string_view kSeverityPrefix = "SEVERITY_";

// "EVENT_KIND_SLICE" for "slice".
std::string WireName(std::string_view prefix, std::string_view name) {
  return StrCat(prefix, absl::AsciiStrToUpper(absl::string_view(name.data(), name.size())));
}

// "slice" for "EVENT_KIND_SLICE", "unknown" for the empty name of a value without one.
std::string PlainName(std::string_view prefix, std::string_view wire_name) {
  if (!wire_name.starts_with(prefix)) return "unknown";
  wire_name.remove_prefix(prefix.size());
  return absl::AsciiStrToLower(absl::string_view(wire_name.data(), wire_name.size()));
}

// The value among the first `count` of an enum whose name is `name`.
template <typename Enum>
Enum Named(std::string_view name, int count) {
  for (int i = 0; i < count; ++i) {
    if (ToString(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  }
  return Enum{};
}

}  // namespace

void ToProto(const Event& event, v1::Event* message) {
  message->Clear();
  v1::EventKind kind = v1::EVENT_KIND_UNSPECIFIED;
  if (v1::EventKind_Parse(WireName(kKindPrefix, ToString(event.kind)), &kind)) {
    message->set_kind(kind);
  }
  v1::Severity severity = v1::SEVERITY_UNSPECIFIED;
  if (v1::Severity_Parse(WireName(kSeverityPrefix, ToString(event.severity)), &severity)) {
    message->set_severity(severity);
  }
  message->set_step(event.step);
  message->set_time_unix_seconds(event.time_unix_seconds);
  message->set_message(ValidUtf8(event.message));
}

Event FromProto(const v1::Event& message) {
  Event event;
  event.kind = Named<Event::Kind>(EventKindText(message.kind()), kEventKinds);
  event.severity =
      Named<Severity>(SeverityText(message.severity()), static_cast<int>(Severity::kError) + 1);
  event.step = message.step();
  event.time_unix_seconds = message.time_unix_seconds();
  event.message = message.message();
  return event;
}

std::string EventKindText(v1::EventKind kind) {
  return PlainName(kKindPrefix, v1::EventKind_Name(kind));
}

std::string SeverityText(v1::Severity severity) {
  return PlainName(kSeverityPrefix, v1::Severity_Name(severity));
}

}  // namespace ptqwatch::internal
