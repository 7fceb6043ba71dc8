#include "notices/alert_notices.h"

#include <gmock/gmock.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ptqwatch/log.h"

namespace ptqwatch::internal {
namespace alert_notices_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr VerdictState kHealthy = VerdictState::kHealthy;
constexpr VerdictState kSpike = VerdictState::kSpike;
constexpr VerdictState kDecay = VerdictState::kDecayDegradation;
constexpr VerdictState kUnknown = VerdictState::kUnknown;

struct AlertNoticesTest : ::testing::Test {
  AlertNoticesTest() {
    SetLogSink(Severity::kInfo, [this](Severity severity, std::string_view message) {
      logged.push_back({severity, std::string(message)});
    });
  }
  ~AlertNoticesTest() override { SetLogSink(Severity::kWarning, nullptr); }

  void Note(VerdictState state) {
    AnalyzedReport report;
    report.verdict.state = state;
    report.verdict.summary = "12 sigmas";
    notices.Note(report, [this](Severity severity, std::string message) {
      order += "event ";
      events.push_back({severity, std::move(message)});
    });
  }

  AlertNotices After(VerdictState before) {
    return AlertNotices(
        before,
        [this](const AnalyzedReport& report) {
          order += "call ";
          called.push_back(report.verdict.state);
          if (throws) throw std::runtime_error("boom");
        },
        cancel);
  }

  using Message = std::pair<Severity, std::string>;
  std::vector<Message> logged;
  std::vector<Message> events;
  std::vector<VerdictState> called;
  std::string order;
  bool throws = false;
  CancelToken cancel;
  AlertNotices notices = After(kUnknown);
};

const std::pair<Severity, std::string> kDecayBegins = {Severity::kWarning,
                                                       "decay_degradation: 12 sigmas"};
const std::pair<Severity, std::string> kSpikeBegins = {Severity::kWarning, "spike: 12 sigmas"};

TEST_F(AlertNoticesTest, SayOnceThatAnAlarmBeganAndThatItEnded) {
  for (const VerdictState state :
       {VerdictState::kWarmingUp, kHealthy, kDecay, kDecay, VerdictState::kRecovering, kHealthy}) {
    Note(state);
  }
  const Message ended = {Severity::kInfo, "no longer decay_degradation but recovering: 12 sigmas"};
  EXPECT_THAT(events, ElementsAre(kDecayBegins, ended));
  EXPECT_EQ(logged, events);
  EXPECT_THAT(called, ElementsAre(kDecay));
  EXPECT_EQ(order, "event call event ");
}

TEST_F(AlertNoticesTest, SayThatAnAlarmBecameAnother) {
  Note(kSpike);
  Note(kDecay);
  EXPECT_THAT(events, ElementsAre(kSpikeBegins, kDecayBegins));
  EXPECT_THAT(called, ElementsAre(kSpike, kDecay));
}

TEST_F(AlertNoticesTest, AreSilentWhileNothingIsKnown) {
  Note(kUnknown);
  Note(kSpike);
  Note(kUnknown);
  Note(kSpike);
  EXPECT_THAT(events, ElementsAre(kSpikeBegins));
  EXPECT_THAT(called, ElementsAre(kSpike));
}

TEST_F(AlertNoticesTest, DoNotRepeatWhatTheAttemptBeforeHasAnnounced) {
  AlertNotices resumed = After(kDecay);
  AnalyzedReport report;
  report.verdict.state = kDecay;
  const auto publish = [&](Severity severity, std::string message) {
    events.push_back({severity, std::move(message)});
  };
  resumed.Note(report, publish);
  resumed.Note(report, publish);
  EXPECT_THAT(events, IsEmpty());
  EXPECT_THAT(called, ElementsAre(kDecay));  // this process has not announced it
  report.verdict.state = kHealthy;
  resumed.Note(report, publish);
  EXPECT_THAT(events,
              ElementsAre(Message{Severity::kInfo, "no longer decay_degradation but healthy: "}));
}

TEST_F(AlertNoticesTest, SurviveACallbackThatThrows) {
  throws = true;
  Note(kSpike);
  Note(kHealthy);
  Note(kSpike);  // within the period of the rate-limited log
  EXPECT_THAT(called, ElementsAre(kSpike, kSpike));
  EXPECT_EQ(events.size(), 3u);
  ASSERT_EQ(logged.size(), 4u);
  EXPECT_EQ(logged[1], Message(Severity::kError, "MonitorOptions.on_alert threw: boom"));
}

TEST_F(AlertNoticesTest, CallNoCallbackOnceTheMonitorIsBeingStopped) {
  cancel.Cancel();
  Note(kSpike);
  EXPECT_THAT(called, IsEmpty());
  EXPECT_THAT(events, ElementsAre(kSpikeBegins));
}

TEST_F(AlertNoticesTest, NeedNoCallback) {
  AlertNotices quiet(kUnknown, nullptr, cancel);
  AnalyzedReport report;
  report.verdict.state = kSpike;
  quiet.Note(report, [&](Severity, std::string) { order += "event"; });
  EXPECT_EQ(order, "event");
}

}  // namespace alert_notices_test
}  // namespace ptqwatch::internal
