#include "publish/publisher.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "support/fake_clock.h"
#include "support/recording_exporter.h"

namespace ptqwatch::internal {
namespace publisher_test {

class BadExporter final : public Exporter {
 public:
  explicit BadExporter(bool start_fails) : start_fails_(start_fails) {}
  std::string_view name() const override { return "bad"; }
  absl::Status Start(StatusSource*, Control*) override {
    return start_fails_ ? absl::UnavailableError("port 1 is taken") : absl::OkStatus();
  }
  void OnReport(std::shared_ptr<const AnalyzedReport>) override {
    throw std::runtime_error("boom");
  }
  void Stop(std::chrono::milliseconds) override {}

 private:
  bool start_fails_;
};

struct PublisherTest : ::testing::Test {
  PublisherTest() { SetLogSink(Severity::kError, nullptr); }
  std::shared_ptr<testing::Recording> recording = std::make_shared<testing::Recording>();
  TrainerBoard steps;
  StatusBoard board{&steps};
  testing::FakeClock clock;
};

TEST_F(PublisherTest, KeepsTheNewestReportAndStopsOnce) {
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
  Publisher publisher({}, &board, &clock, std::move(exporters));
  ASSERT_TRUE(publisher.Start(nullptr).ok());
  EXPECT_EQ(publisher.latest(), nullptr);
  auto report = std::make_shared<const AnalyzedReport>();
  publisher.Publish(report);
  EXPECT_EQ(publisher.latest(), report);
  publisher.Stop(std::chrono::seconds(1));
  publisher.Publish(report);
  EXPECT_EQ(recording->Reports().size(), 1u);
  EXPECT_TRUE(recording->stopped);
}

TEST_F(PublisherTest, LeavesOutAnExporterThatIsNotRequired) {
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
  exporters.push_back(std::make_unique<BadExporter>(true));
  Publisher publisher({}, &board, &clock, std::move(exporters));
  ASSERT_TRUE(publisher.Start(nullptr, /*required=*/1).ok());
  publisher.Publish(std::make_shared<const AnalyzedReport>());
  EXPECT_EQ(recording->Reports().size(), 1u);
  ASSERT_EQ(recording->Events().size(), 1u);
  EXPECT_EQ(recording->Events()[0].kind, Event::Kind::kExporterFailed);
  EXPECT_EQ(recording->Events()[0].message, "exporter bad is left out: port 1 is taken");
  EXPECT_TRUE(publisher.status().dropped_reports.empty());
}

TEST_F(PublisherTest, IsNotStoppedFromInsideAnExporter) {
  class Stops final : public Exporter {
   public:
    std::string_view name() const override { return "stops"; }
    absl::Status Start(StatusSource* source, Control*) override {
      publisher_ = static_cast<Publisher*>(source);
      return absl::OkStatus();
    }
    void OnReport(std::shared_ptr<const AnalyzedReport>) override {
      publisher_->Stop(std::chrono::hours(1));
    }
    void Stop(std::chrono::milliseconds) override {}

   private:
    Publisher* publisher_ = nullptr;
  };
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<Stops>());
  exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
  Publisher publisher({}, &board, &clock, std::move(exporters));
  ASSERT_TRUE(publisher.Start(nullptr).ok());
  publisher.Publish(std::make_shared<const AnalyzedReport>());
  publisher.Publish(std::make_shared<const AnalyzedReport>());
  EXPECT_EQ(recording->Reports().size(), 2u);
  publisher.Stop(std::chrono::seconds(1));
  EXPECT_TRUE(recording->stopped);
}

TEST_F(PublisherTest, GoesOnWhenAnExporterThrows) {
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<BadExporter>(false));
  exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
  Publisher publisher({}, &board, &clock, std::move(exporters));
  ASSERT_TRUE(publisher.Start(nullptr).ok());
  publisher.Publish(std::make_shared<const AnalyzedReport>());
  EXPECT_EQ(recording->Reports().size(), 1u);
  EXPECT_EQ(publisher.status().dropped_reports,
            (std::vector<DroppedReports>{{"bad", "exception", 1}}));
}

TEST_F(PublisherTest, AnnouncesAnExporterThatFailsOnceToTheOthers) {
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<BadExporter>(false));
  exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
  Publisher publisher({}, &board, &clock, std::move(exporters));
  ASSERT_TRUE(publisher.Start(nullptr).ok());
  auto report = std::make_shared<AnalyzedReport>();
  report->report.step = 7;
  publisher.Publish(report);
  publisher.Publish(report);
  ASSERT_EQ(recording->Events().size(), 1u);
  EXPECT_EQ(recording->Events()[0].kind, Event::Kind::kExporterFailed);
  EXPECT_EQ(recording->Events()[0].step, 7);
  EXPECT_EQ(recording->Events()[0].message, "exporter bad: boom");
  EXPECT_EQ(recording->Reports().size(), 2u);
}

Event Of(Event::Kind kind) {
  Event event;
  event.kind = kind;
  return event;
}

TEST_F(PublisherTest, CountsEventsByKindAndStopsWithTheLast) {
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
  Publisher publisher({}, &board, &clock, std::move(exporters));
  ASSERT_TRUE(publisher.Start(nullptr).ok());
  publisher.PublishEvent(Of(Event::Kind::kSlice));
  publisher.PublishEvent(Of(Event::Kind::kSlice));
  publisher.Stop(std::chrono::seconds(1), /*destroy=*/false, Of(Event::Kind::kStopped));
  publisher.PublishEvent(Of(Event::Kind::kSlice));
  const MonitorStatus status = publisher.status();
  EXPECT_EQ(status.events[static_cast<size_t>(Event::Kind::kSlice)], 2);
  EXPECT_EQ(status.events[static_cast<size_t>(Event::Kind::kStopped)], 1);
  ASSERT_EQ(recording->Events().size(), 3u);
  EXPECT_EQ(recording->Events().back().kind, Event::Kind::kStopped);
}

TEST_F(PublisherTest, CompletesTheStatus) {
  Publisher publisher({}, &board, &clock, {}, [](MonitorStatus& status) { status.every = 25; });
  EXPECT_EQ(publisher.status().every, 25);
}

TEST_F(PublisherTest, StopsTheOthersWhenOneCannotStart) {
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
  exporters.push_back(std::make_unique<BadExporter>(true));
  Publisher publisher({}, &board, &clock, std::move(exporters));
  EXPECT_EQ(publisher.Start(nullptr).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(recording->stopped);
}

}  // namespace publisher_test
}  // namespace ptqwatch::internal
