#include "watch_screen.h"

#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "printable.h"
#include "support/sample_report.h"

namespace ptqwatch::internal {
namespace watch_screen_test {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr TextStyle kPlain{.utf8 = true};
constexpr TextStyle kAscii{.utf8 = false};
constexpr TextStyle kColored{.utf8 = true, .color = true};

AnalyzedReport ReportAt(int64_t step, LrPhase phase, double error) {
  AnalyzedReport analyzed = testing::SampleReport();
  analyzed.report.sequence = analyzed.report.step = step;
  analyzed.report.lr_phase = phase;
  analyzed.report.snapshot_time_unix_seconds = 1000;
  for (QuantizationReport& entry : analyzed.report.quantization) entry.error_ratio = error;
  analyzed.verdict.onset_step = 10;
  return analyzed;
}

WatchState SampleState() {
  WatchState state;
  state.target = "host:9465";
  state.now_unix_seconds = 1012;
  state.status.emplace().run.run_id = "run-7";
  MonitorStatus& status = state.status->monitor;
  status.step = 1234;
  status.learning_rate = 2.5e-3;
  status.lr_phase = LrPhase::kDecay;
  status.health = Health::kOk;
  status.overhead_ratio = 0.008;
  status.overhead_budget_ratio = 0.04;
  for (int64_t step = 1; step <= 12; ++step) {
    state.Add(ReportAt(step, step < 9 ? LrPhase::kStable : LrPhase::kDecay,
                       0.01 * static_cast<double>(step)));
  }
  state.layers = LayersOf(*state.newest);
  state.layers_step = 12;
  state.AddEvent({1000, "step 9, phase_change: stable -> decay"});
  return state;
}

std::string Screen(const WatchState& state, ScreenSize size = {100, 60}, TextStyle style = kPlain) {
  return absl::StrJoin(WatchScreen(state, size, style), "\n");
}

std::string WithoutColors(const std::string& text) {
  return std::regex_replace(text, std::regex("\x1b\\[[0-9]*m"), "");
}

TEST(WatchScreen, ShowsRunVerdictQuantizersTrendsLayersAndEvents) {
  const std::string screen = Screen(SampleState());
  EXPECT_THAT(screen, AllOf(HasSubstr("run-7 at host:9465\nstep 1234  lr 2.50e-3  phase decay"),
                            HasSubstr("report of step 12, 12 s ago"),
                            HasSubstr("cost not measured yet (0 comparisons) of 4.0% allowed")));
  EXPECT_THAT(screen, AllOf(HasSubstr("ALARM decay_degradation since step 10\n"),
                            HasSubstr("\nseverity: "), HasSubstr("\nadvice: ")));
  EXPECT_THAT(screen, AllOf(HasSubstr("▁▁▂▃▃▄▅▆▆▇██"), HasSubstr("│stable─│dec"),
                            HasSubstr("\ntrace"), HasSubstr("\ntop eig")));
  EXPECT_THAT(screen, AllOf(HasSubstr("blocks.1.weight"), HasSubstr("stable -> decay")));
  EXPECT_THAT(screen, ::testing::EndsWith("q quits, p pauses"));
}

TEST(WatchScreen, FitsEveryScreen) {
  WatchState state = SampleState();
  state.newest->verdict.summary += std::string(300, 'x');
  state.status->run.run_id = std::string(200, 'n');
  for (const TextStyle style : {kPlain, kColored, kAscii}) {
    for (size_t rows = 1; rows < 50; ++rows) {
      for (const size_t columns : {1, 2, 7, 20, 40, 80, 300}) {
        const std::vector<std::string> lines = WatchScreen(state, {columns, rows}, style);
        EXPECT_EQ(lines.size(), rows);
        for (const std::string& line : lines) {
          EXPECT_LE(DisplayWidth(WithoutColors(line)), columns) << line;
        }
      }
    }
  }
}

TEST(WatchScreen, KeepsWhatMattersMostIfRowsAreScarce) {
  const std::vector<std::string> two = WatchScreen(SampleState(), {80, 2}, kPlain);
  EXPECT_THAT(two, ::testing::ElementsAre("run-7 at host:9465",
                                          HasSubstr("ALARM decay_degradation since step 10")));
  const std::string nine = Screen(SampleState(), {40, 9});
  EXPECT_THAT(nine, AllOf(HasSubstr("ALARM"), HasSubstr("gptq"), HasSubstr("q quits")));
  EXPECT_THAT(nine, Not(HasSubstr("worst layers")));
}

TEST(WatchScreen, IsAsciiIfTheTerminalIs) {
  WatchState state = SampleState();
  state.newest->verdict.summary = "0.09 → 0.07 ± 0.01 ü";
  const std::string screen = Screen(state, {100, 60}, kAscii);
  for (const char c : screen) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7F)) << screen;
  EXPECT_THAT(screen, HasSubstr("0.09 -> 0.07 +- 0.01 ?"));
}

TEST(WatchScreen, LetsNoNameMoveTheCursor) {
  WatchState state = SampleState();
  const std::string evil = "\x1b[2J\nevil\r\x9b";
  state.target = evil;
  state.status->run.run_id = evil;
  state.status->monitor.health_reason = evil;
  state.newest->verdict.summary = evil;
  state.newest->verdict.advice[0].text = evil;
  state.layers[0].name = evil;
  state.AddEvent({1, evil});
  const std::vector<std::string> lines = WatchScreen(state, {80, 60}, kPlain);
  EXPECT_THAT(lines, Each(Not(::testing::ContainsRegex("[\x01-\x1f]"))));
  EXPECT_THAT(absl::StrJoin(lines, "\n"), HasSubstr("?[2J?evil?"));
}

TEST(WatchScreen, PaintsTheCourseFromTheOnsetOnInTheColourOfTheVerdict) {
  const std::string screen = Screen(SampleState(), {100, 60}, kColored);
  EXPECT_THAT(screen, HasSubstr("▁▁▂▃▃▄▅▆▆\x1b[31m▇██\x1b[0m"));
}

TEST(WatchScreen, SaysSinceWhenThereIsNoConnection) {
  WatchState state = SampleState();
  state.lost_unix_seconds = 1000;
  EXPECT_THAT(Screen(state), ::testing::ContainsRegex(
                                 "no connection since [0-9]+:[0-9]+:40 \\(12 s\\), trying again"));
  state.status->monitor.health = Health::kStopped;
  EXPECT_THAT(Screen(state), HasSubstr("the run has ended; waiting for the next"));
  state.lost_unix_seconds.reset();
  state.silence_seconds = 30;
  EXPECT_THAT(Screen(state), HasSubstr("no answer for 30 s"));
}

TEST(WatchScreen, IsThereBeforeTheFirstReportAndTheFirstAnswer) {
  WatchState state;
  state.target = "host:9465";
  EXPECT_THAT(Screen(state, {80, 3}), ::testing::StartsWith("connecting to host:9465\n"));
  state.status.emplace().run.run_id = "run-7";
  EXPECT_THAT(Screen(state, {80, 5}), AllOf(HasSubstr("no step yet"), HasSubstr("no report yet")));
  EXPECT_EQ(WatchSummary(state, kPlain), "");
}

TEST(WatchScreen, ShowsWordsForWhatWasNotMeasured) {
  WatchState state = SampleState();
  AnalyzedReport failed = ReportAt(13, LrPhase::kDecay, NAN);
  failed.report.probe_loss_nats.reset();
  for (QuantizationReport& entry : failed.report.quantization) {
    entry.status = ProbeStatus::kNonFinite;
  }
  failed.report.curvature.reset();
  state.Add(failed);
  EXPECT_THAT(Screen(state),
              AllOf(HasSubstr("inf/nan"), HasSubstr("\nloss "), HasSubstr("\ntrace")));
}

TEST(WatchSummary, IsTheNewestVerdict) {
  EXPECT_THAT(WatchSummary(SampleState(), kPlain),
              ::testing::StartsWith("step 12: decay_degradation since step 10: "));
}

TEST(WatchState, ReplacesWhatARollbackTookBack) {
  WatchState state;
  for (const int64_t step : {10, 20, 30, 20}) state.Add(ReportAt(step, LrPhase::kStable, 0.1));
  ASSERT_EQ(state.points.size(), 2u);
  EXPECT_EQ(state.points.back().step, 20);
}

TEST(WatchState, KeepsABoundedPast) {
  WatchState state;
  for (int64_t step = 1; step <= 2000; ++step) state.Add(ReportAt(step, LrPhase::kStable, 0.1));
  for (int i = 0; i < 200; ++i) state.AddEvent({0, "event"});
  EXPECT_EQ(state.points.size(), WatchState::kMaxPoints);
  EXPECT_EQ(state.points.back().step, 2000);
  EXPECT_EQ(state.events.size(), WatchState::kMaxEvents);
}

TEST(WatchState, ForgetsARunThatIsThereNoMore) {
  WatchState state = SampleState();
  state.ForgetRun();
  EXPECT_THAT(Screen(state), AllOf(HasSubstr("no report yet"), Not(HasSubstr("ALARM"))));
}

}  // namespace watch_screen_test
}  // namespace ptqwatch::internal
