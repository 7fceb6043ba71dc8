#include "event_proto.h"

#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace event_proto_test {

TEST(EventProto, ReadsBackEveryKindAndSeverity) {
  for (int kind = 0; kind < kEventKinds; ++kind) {
    for (const Severity severity : {Severity::kInfo, Severity::kWarning, Severity::kError}) {
      Event event;
      event.kind = static_cast<Event::Kind>(kind);
      event.severity = severity;
      event.step = 12;
      event.time_unix_seconds = 1.5e9;
      event.message = "why";
      v1::Event message;
      message.set_number(4);
      ToProto(event, &message);
      EXPECT_EQ(message.number(), 0);
      EXPECT_EQ(message.kind(), kind + 1);
      EXPECT_EQ(message.severity(), static_cast<int>(severity) + 1);
      const Event read = FromProto(message);
      EXPECT_EQ(read.kind, event.kind);
      EXPECT_EQ(read.severity, severity);
      EXPECT_EQ(read.step, 12);
      EXPECT_EQ(read.time_unix_seconds, 1.5e9);
      EXPECT_EQ(read.message, "why");
    }
  }
}

TEST(EventProto, HasAValueForEveryKind) {
  EXPECT_EQ(v1::EventKind_ARRAYSIZE, kEventKinds + 1);  // and unspecified
}

TEST(EventProto, TakesAKindOfALaterVersion) {
  v1::Event message;
  message.set_kind(static_cast<v1::EventKind>(99));
  EXPECT_EQ(FromProto(message).kind, Event::Kind{});
}

}  // namespace event_proto_test
}  // namespace ptqwatch::internal
