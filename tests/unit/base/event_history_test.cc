#include "base/event_history.h"

#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace event_history_test {

int64_t NumberAfter(const EventHistory& history, int64_t number) {
  const WireEvent* event = history.After(number);
  return event == nullptr ? -1 : event->number;
}

TEST(EventHistory, GivesTheOldestEventAfterANumber) {
  EventHistory history(3);
  EXPECT_EQ(NumberAfter(history, 0), -1);
  for (int64_t number = 1; number <= 5; ++number) history.Append({.number = number, .bytes = {}});
  EXPECT_EQ(history.newest(), 5);
  EXPECT_EQ(NumberAfter(history, 0), 3);  // 1 and 2 are gone
  EXPECT_EQ(NumberAfter(history, 3), 4);
  EXPECT_EQ(NumberAfter(history, 4), 5);
  EXPECT_EQ(NumberAfter(history, 5), -1);
  EXPECT_EQ(NumberAfter(history, 99), -1);
}

}  // namespace event_history_test
}  // namespace ptqwatch::internal
