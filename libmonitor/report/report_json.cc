#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nlohmann/json.hpp"
#include "ptqwatch/event.h"
#include "ptqwatch/report.h"
#include "report/json_fields.h"
#include "report/report_fields.h"

namespace ptqwatch {
namespace {

using internal::JsonReader;
using internal::JsonWriter;
using internal::ParseJson;
using internal::StrCat;
using internal::VisitFields;
using internal::WrittenJson;

}  // namespace

std::string ToJson(const AnalyzedReport& report) {
  // Names come from the trainer and may contain invalid UTF-8, which becomes U+FFFD instead of an
  // exception.
  return internal::JsonText(*JsonWriter::Write(report));
}

std::string EventToJson(const Event& event) {
  WrittenJson line;
  line["event"] = *JsonWriter::Write(event);
  return internal::JsonText(line);
}

bool IsEventJson(std::string_view line) { return line.starts_with("{\"event\":"); }

absl::StatusOr<Event> EventFromJson(std::string_view line) {
  return internal::Guard(
      "event JSON", absl::StatusCode::kInvalidArgument, [&]() -> absl::StatusOr<Event> {
        PTQWATCH_ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseJson("event JSON", line));
        const nlohmann::json& fields = parsed.at("event");
        Event event;
        absl::Status status;
        VisitFields(event, JsonReader(fields, "event", status));
        if (!status.ok()) return absl::InvalidArgumentError(StrCat("event JSON: ", status));
        PTQWATCH_ASSIGN_OR_RETURN(event.kind,
                                  ParseEventKind(fields.at("kind").get_ref<const std::string&>()));
        return event;
      });
}

absl::StatusOr<AnalyzedReport> FromJson(std::string_view json) {
  return internal::Guard(
      "report JSON", absl::StatusCode::kInvalidArgument, [&]() -> absl::StatusOr<AnalyzedReport> {
        PTQWATCH_ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseJson("report JSON", json));
        if (parsed.contains("event")) {
          return absl::InvalidArgumentError("report JSON: an event, not a report");
        }
        return internal::ReadRecord<AnalyzedReport>("report JSON", parsed);
      });
}

}  // namespace ptqwatch
