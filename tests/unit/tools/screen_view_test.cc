#include "screen_view.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/fake_clock.h"
#include "unit/proto/client/fake_server.h"

namespace ptqwatch::internal {
namespace screen_view_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::FakeClock;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReportNumber;

class ScreenViewTest : public ::testing::Test {
 protected:
  ScreenViewTest() { status_.run.run_id = "run-1"; }

  void Report(int64_t sequence) { goes_on_ = view_.OnReport(ReportNumber(sequence), 0); }
  bool Tick(bool connected = true, std::chrono::nanoseconds later = milliseconds(100)) {
    clock_.Advance(later);
    return view_.OnTick(connected);
  }

  FakeClock clock_;
  WatchFlags flags_;
  RunStatus status_;
  ScreenSize size_{80, 40};
  std::string keys_;
  bool closed_ = false;
  bool goes_on_ = true;
  std::vector<std::string> frames_;
  std::vector<int64_t> layers_read_;
  ScreenView view_{
      &flags_,
      &clock_,
      {.utf8 = true},
      {.size = [this] { return size_; },
       .draw = [this](const auto& lines) { frames_.push_back(absl::StrJoin(lines, "\n")); },
       .key =
           [this] {
             if (keys_.empty()) return '\0';
             const char key = keys_.front();
             keys_.erase(0, 1);
             return key;
           },
       .closed = [this] { return closed_; }},
      [this](int64_t sequence) {
        layers_read_.push_back(sequence);
        return std::optional(ReportNumber(sequence));
      }};
};

TEST_F(ScreenViewTest, DrawsWhatIsNewAndOtherwiseOnceASecond) {
  view_.OnStatus(status_);
  Tick();
  EXPECT_EQ(frames_.size(), 1u);
  for (int i = 0; i < 9; ++i) Tick();
  EXPECT_EQ(frames_.size(), 1u);
  Tick();
  EXPECT_EQ(frames_.size(), 2u);
  Report(1);
  Tick();
  EXPECT_EQ(frames_.size(), 3u);
  EXPECT_THAT(frames_.back(), HasSubstr("report of step 1000"));
}

TEST_F(ScreenViewTest, DoesNotDrawABacklogReportByReport) {
  status_.monitor.last_sequence = 100;
  view_.OnStatus(status_);
  for (int64_t sequence = 1; sequence <= 100; ++sequence) {
    Report(sequence);
    Tick(true, milliseconds(1));
  }
  EXPECT_LE(frames_.size(), 3u);
  EXPECT_THAT(layers_read_, ElementsAre(100));
}

TEST_F(ScreenViewTest, ReadsTheLayersOfTheNewestReportOnce) {
  status_.monitor.last_sequence = 1;
  view_.OnStatus(status_);
  Report(1);
  Tick();
  Tick();
  EXPECT_THAT(layers_read_, ElementsAre(1));
  EXPECT_THAT(frames_.back(), HasSubstr("blocks.1.weight"));
  Tick(false);
  Report(2);
  Tick(false);
  EXPECT_THAT(layers_read_, ElementsAre(1));  // no run is left to ask
}

TEST_F(ScreenViewTest, EndsByKeyByCountAndWhenTheOutputIsClosed) {
  EXPECT_TRUE(Tick());
  keys_ = "xq";
  EXPECT_FALSE(Tick());
  flags_.count = 2;
  Report(1);
  EXPECT_TRUE(goes_on_);
  Report(2);
  EXPECT_FALSE(goes_on_);
  closed_ = true;
  EXPECT_FALSE(Tick());
}

TEST_F(ScreenViewTest, DrawsNothingNewWhilePausedButFitsANewSize) {
  view_.OnStatus(status_);
  Report(1);
  keys_ = "p";
  Tick();
  EXPECT_THAT(frames_.back(), HasSubstr("paused"));
  const size_t frames = frames_.size();
  Report(2);
  Tick(true, seconds(5));
  EXPECT_EQ(frames_.size(), frames);
  size_ = {40, 20};
  Tick();
  EXPECT_EQ(frames_.size(), frames + 1);
  keys_ = "p";
  Tick();
  EXPECT_THAT(frames_.back(), HasSubstr("report of step 2000"));
}

TEST_F(ScreenViewTest, SaysSinceWhenTheConnectionIsLostAndForgetsAnotherRun) {
  view_.OnStatus(status_);
  Report(1);
  Tick();
  Tick(false);
  Tick(false, seconds(20));
  EXPECT_THAT(frames_.back(), HasSubstr("(20 s), trying again"));
  view_.OnNotice("connected again");
  Tick(true);
  EXPECT_THAT(frames_.back(), HasSubstr("connected again"));
  EXPECT_THAT(frames_.back(), ::testing::Not(HasSubstr("trying again")));
  status_.run.run_id = "run-2";
  view_.OnStatus(status_);
  Tick();
  EXPECT_THAT(frames_.back(), HasSubstr("no report yet"));
}

TEST_F(ScreenViewTest, ShowsEventsWithTheTimeAtWhichTheyCame) {
  view_.OnStatus(status_);
  Event event;
  event.kind = Event::Kind::kAlert;
  event.step = 14400;
  event.message = "E rises";
  view_.OnEvent(event);
  Tick();
  EXPECT_THAT(frames_.back(), HasSubstr("step 14400, alert: E rises"));
}

}  // namespace screen_view_test
}  // namespace ptqwatch::internal
