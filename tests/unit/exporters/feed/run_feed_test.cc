#include "feed/run_feed.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/sample_report.h"

namespace ptqwatch::internal {
namespace run_feed_test {

using ::testing::ElementsAre;

class RunFeedTest : public ::testing::Test {
 protected:
  static ReportForms Forms() {
    ReportForms forms;
    forms[0] = [](const AnalyzedReport& report) { return std::to_string(report.report.sequence); };
    return forms;
  }
  bool Publish(int64_t sequence) {
    AnalyzedReport report = testing::SampleReport();
    report.report.sequence = sequence;
    return feed_.Publish(report);
  }
  void Happens(const std::string& message, Event::Kind kind = Event::Kind::kPhaseChange) {
    feed_.Publish(Event{.kind = kind, .message = message});
  }
  // Reports by their sequence and events by their message.
  std::vector<std::string> ReadOn(RunFeed::Position& position, const RunFeed::Wants& wants) const {
    std::vector<std::string> read;
    while (const std::optional<RunFeed::Item> item = feed_.Next(position, wants)) {
      read.push_back(item->event == nullptr ? *item->report : item->event->message);
    }
    return read;
  }

  int changes_ = 0;
  RunFeed feed_{{.reports = 3}, Forms(), [this] { ++changes_; }};
  const RunFeed::Wants everything_{.form = ReportForm::kJson};
};

TEST_F(RunFeedTest, GivesReportsAndEventsInTheirOrder) {
  Happens("a");
  EXPECT_TRUE(Publish(1));
  Happens("b");
  EXPECT_TRUE(Publish(2));
  EXPECT_FALSE(Publish(2));
  EXPECT_EQ(changes_, 4);
  RunFeed::Position position;
  EXPECT_THAT(ReadOn(position, everything_), ElementsAre("a", "1", "b", "2"));
  EXPECT_EQ(position.sequence, feed_.newest().sequence);
  EXPECT_EQ(position.event, feed_.newest().event);
  Publish(3);
  EXPECT_THAT(ReadOn(position, everything_), ElementsAre("3"));
}

TEST_F(RunFeedTest, GivesWhatAReaderWants) {
  Happens("a");
  Publish(1);
  Happens("b", Event::Kind::kAlert);
  RunFeed::Wants alerts{.reports = false};
  alerts.passes = [](const Event& event) { return event.kind == Event::Kind::kAlert; };
  RunFeed::Position position;
  EXPECT_THAT(ReadOn(position, alerts), ElementsAre("b"));
  EXPECT_EQ(position.lost_events, 0);
  position = {};
  EXPECT_THAT(ReadOn(position, {.form = ReportForm::kJson, .events = false}), ElementsAre("1"));
}

TEST_F(RunFeedTest, CountsEventsThatItNoLongerHas) {
  for (size_t i = 0; i < RunFeed::kMaxEvents + 5; ++i) Happens("e");
  RunFeed::Position position{.event = 2};
  ASSERT_TRUE(feed_.Next(position, everything_));
  EXPECT_EQ(position.event, 6);
  EXPECT_EQ(position.lost_events, 3);
}

TEST_F(RunFeedTest, ListsPages) {
  for (int64_t sequence = 1; sequence <= 5; ++sequence) Publish(sequence);
  const RunFeed::Page page = feed_.List(0, 2, ReportForm::kJson);
  ASSERT_EQ(page.reports.size(), 2u);
  EXPECT_EQ(*page.reports[0], "3");
  EXPECT_TRUE(page.more);
  EXPECT_EQ(page.oldest, 3);
  EXPECT_EQ(page.newest, 5);
  EXPECT_TRUE(feed_.List(5, 2, ReportForm::kJson).reports.empty());
}

TEST_F(RunFeedTest, IsOverWhileTheRunHasStopped) {
  EXPECT_FALSE(feed_.over());
  Happens("the end", Event::Kind::kStopped);
  EXPECT_TRUE(feed_.over());
  Publish(1);  // from the next attempt
  EXPECT_FALSE(feed_.over());
  feed_.Close();
  EXPECT_TRUE(feed_.over());
  EXPECT_TRUE(feed_.closed());
}

}  // namespace run_feed_test
}  // namespace ptqwatch::internal
