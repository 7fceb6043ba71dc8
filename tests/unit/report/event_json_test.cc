#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "ptqwatch/event.h"
#include "ptqwatch/report.h"

namespace ptqwatch {
namespace event_json_test {

using nlohmann::json;
using ::testing::HasSubstr;

Event Sample() {
  return {Event::Kind::kProbeFailed, Severity::kWarning, (int64_t{1} << 53) + 1, 1700000000.123456,
          "gptq 3-bit: \"no\" memory"};
}

std::string Refusal(const std::string& line) {
  const absl::StatusOr<Event> event = EventFromJson(line);
  EXPECT_EQ(event.status().code(), absl::StatusCode::kInvalidArgument) << line;
  return event.status().ToString();
}

TEST(EventJson, HasTheKeysOfTheContract) {
  EXPECT_EQ(json::parse(EventToJson(Sample())), json::parse(R"({"event": {
      "kind": "probe_failed", "severity": "warning", "step": 9007199254740993,
      "time_unix_seconds": 1700000000.123456, "message": "gptq 3-bit: \"no\" memory"}})"));
}

TEST(EventJson, ReadsBackWhatItWrote) {
  for (int kind = 0; kind < kEventKinds; ++kind) {
    Event event = Sample();
    event.kind = static_cast<Event::Kind>(kind);
    const std::string line = EventToJson(event);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_TRUE(IsEventJson(line));
    const absl::StatusOr<Event> read = EventFromJson(line);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, event);
  }
  Event bytes = Sample();
  bytes.message = "a\xFF\n";
  EXPECT_EQ(EventFromJson(EventToJson(bytes))->message, "a\xEF\xBF\xBD\n");
}

TEST(EventJson, ReadsWhatALaterVersionWrites) {
  const auto event =
      EventFromJson(R"({"event":{"kind":"slice","severity":"later","more":1},"also":2})");
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->kind, Event::Kind::kSlice);
  EXPECT_EQ(event->severity, Severity::kInfo);
}

TEST(EventJson, RefusesLinesThatAreNotEvents) {
  EXPECT_THAT(Refusal("{"), HasSubstr("malformed"));
  EXPECT_THAT(Refusal("{}"), HasSubstr("event"));
  EXPECT_THAT(Refusal(R"({"event": 3})"), HasSubstr("event must be an object"));
  EXPECT_THAT(Refusal(R"({"event": {}})"), HasSubstr("kind"));
  EXPECT_THAT(Refusal(R"({"event": {"kind": "later"}})"), HasSubstr("unknown event kind 'later'"));
  EXPECT_THAT(Refusal(R"({"event": {"kind": "slice", "step": "1"}})"),
              HasSubstr("event.step must be an integer"));
}

TEST(EventJson, IsNotAReport) {
  EXPECT_FALSE(IsEventJson(ToJson(AnalyzedReport{})));
  const auto report = FromJson(EventToJson(Sample()));
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(report.status().ToString(), HasSubstr("an event, not a report"));
}

}  // namespace event_json_test
}  // namespace ptqwatch
