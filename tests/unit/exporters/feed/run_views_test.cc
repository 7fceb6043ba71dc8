#include "feed/run_views.h"

#include <chrono>
#include <cmath>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "support/fake_clock.h"
#include "support/fake_status_source.h"
#include "support/sample_report.h"

namespace ptqwatch::internal {
namespace run_views_test {

class RunViewsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    run_ = *views_.Add("");
    ASSERT_TRUE(run_->Start(&source_, nullptr).ok());
  }
  void Publish(double snapshot_unix_seconds) {
    AnalyzedReport report = testing::SampleReport();
    report.report.sequence = ++sequence_;
    report.report.snapshot_time_unix_seconds = snapshot_unix_seconds;
    run_->OnReport(std::make_shared<const AnalyzedReport>(std::move(report)));
  }
  double Age() const { return views_.Look().at(0).report_age_seconds; }

  testing::FakeClock clock_;
  testing::FakeStatusSource source_;
  RunViews views_{{}, [] {}, &clock_};
  std::unique_ptr<Exporter> run_;
  int64_t sequence_ = 0;
};

TEST_F(RunViewsTest, HasNoAgeBeforeTheFirstReport) { EXPECT_TRUE(std::isnan(Age())); }

// Somebody sets the time of day by an hour after a report, and before the next one.
TEST_F(RunViewsTest, TellsAgesByTheMonotonicClock) {
  for (const double step : {-3600.0, 3600.0}) {
    clock_.SetUnixSeconds(1.7e9);
    Publish(clock_.UnixSeconds() - 20);
    clock_.Advance(std::chrono::seconds(10));
    EXPECT_NEAR(Age(), 30, 0.01);
    clock_.SetUnixSeconds(1.7e9 + step);
    EXPECT_NEAR(Age(), 30, 0.01) << step;
    clock_.Advance(std::chrono::seconds(5));
    EXPECT_NEAR(Age(), 35, 0.01) << step;
    Publish(clock_.UnixSeconds() - 20);
    EXPECT_NEAR(Age(), 20, 0.01) << step;
  }
}

// Its trainer's clock is ahead.
TEST_F(RunViewsTest, TakesAReportOfTheFutureForNew) {
  Publish(clock_.UnixSeconds() + 3600);
  clock_.Advance(std::chrono::seconds(5));
  EXPECT_NEAR(Age(), 5, 0.01);
}

}  // namespace run_views_test
}  // namespace ptqwatch::internal
