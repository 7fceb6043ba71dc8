#include "http/event_stream.h"

#include <memory>
#include <optional>
#include <string>

#include "feed/report_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/fake_clock.h"
#include "support/sample_report.h"

namespace ptqwatch::internal {
namespace event_stream_test {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class EventStreamTest : public ::testing::Test {
 protected:
  void Publish(int64_t sequence) {
    AnalyzedReport report = testing::SampleReport();
    report.report.sequence = sequence;
    feed_->Publish(report);
  }
  EventStream Stream(RunFeed::Position after = {}) {
    return EventStream(
        feed_, after, ReportForm::kJsonWithoutLayers, [this] { return status_; }, &clock_);
  }

  static ReportForms Forms() {
    ReportForms forms;
    AddJsonForms(forms);
    return forms;
  }

  testing::FakeClock clock_;
  std::string status_;
  const std::shared_ptr<RunFeed> feed_ =
      std::make_shared<RunFeed>(ReportHistory::Limits{.reports = 3}, Forms(), [] {});
};

TEST_F(EventStreamTest, TellsReportsAndEventsInTheirOrder) {
  EventStream stream = Stream();
  EXPECT_EQ(stream.Next(), "");
  Publish(1);
  feed_->Publish(Event{.kind = Event::Kind::kPhaseChange, .message = "m"});
  Publish(2);
  const std::string part = *stream.Next();
  EXPECT_THAT(part, StartsWith("id: 1-0\nevent: report\ndata: {"));
  EXPECT_LT(part.find("id: 1-1\nevent: event\ndata: {\"event\":{\"kind\":\"phase_change\""),
            part.find("id: 2-1\nevent: report\n"));
  EXPECT_EQ(stream.Next(), "");
}

TEST_F(EventStreamTest, GoesOnAfterAPositionAndCountsWhatIsGone) {
  for (int64_t sequence = 1; sequence <= 9; ++sequence) Publish(sequence);
  EXPECT_THAT(*Stream({.sequence = 8}).Next(), StartsWith("id: 9-0\n"));
  EXPECT_THAT(*Stream({.sequence = 3}).Next(),
              StartsWith("event: missed\ndata: {\"missed\":3}\n\nid: 7-0\n"));
}

TEST_F(EventStreamTest, TellsAStatusThatChangedOnceASecond) {
  status_ = "{\"step\":1}";
  EventStream stream = Stream();
  EXPECT_EQ(*stream.Next(),
            "event: status\ndata: {\"step\":1,\"time_unix_seconds\":1700000000.000}\n\n");
  status_ = "{\"step\":2}";
  EXPECT_EQ(stream.Next(), "");
  clock_.Advance(seconds(1));
  EXPECT_THAT(*stream.Next(), HasSubstr("{\"step\":2,"));
  clock_.Advance(seconds(1));
  EXPECT_EQ(stream.Next(), "") << "the same status";
  status_ = "";
  clock_.Advance(seconds(1));
  EXPECT_EQ(stream.Next(), "") << "none";
}

TEST_F(EventStreamTest, ShowsLifeInSilence) {
  EventStream stream = Stream();
  clock_.Advance(seconds(14));
  EXPECT_EQ(stream.Next(), "");
  clock_.Advance(seconds(1));
  EXPECT_EQ(stream.Next(), ":\n\n");
  EXPECT_EQ(stream.Next(), "");
}

TEST_F(EventStreamTest, EndsAfterTheLastReport) {
  EventStream stream = Stream();
  Publish(1);
  feed_->Close();
  EXPECT_THAT(*stream.Next(), HasSubstr("id: 1-0\n"));
  EXPECT_EQ(stream.Next(), std::nullopt);
}

TEST_F(EventStreamTest, GivesALongHistoryInParts) {
  const auto history =
      std::make_shared<RunFeed>(ReportHistory::Limits{.reports = 10'000}, Forms(), [] {});
  AnalyzedReport report = testing::SampleReport();
  for (report.report.sequence = 1; report.report.sequence <= 300; ++report.report.sequence) {
    history->Publish(report);
  }
  EventStream stream(
      history, {}, ReportForm::kJson, [] { return ""; }, &clock_);
  size_t largest = 0;
  std::string all;
  for (std::string part = *stream.Next(); !part.empty(); part = *stream.Next()) {
    largest = std::max(largest, part.size());
    all += part;
  }
  EXPECT_LT(largest, size_t{100} << 10);
  EXPECT_GT(all.size(), 3 * largest);
  EXPECT_THAT(all,
              AllOf(HasSubstr("id: 1-0\n"), HasSubstr("id: 300-0\n"), Not(HasSubstr("missed"))));
}

}  // namespace event_stream_test
}  // namespace ptqwatch::internal
