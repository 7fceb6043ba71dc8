#include "commands.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "captured_terminal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/fake_clock.h"
#include "unit/proto/client/fake_server.h"
#include "unit/proto/client/raw_server.h"

namespace ptqwatch::internal {
namespace commands_test {

using std::chrono::milliseconds;
using ::testing::AllOf;
using testing::CapturedTerminal;
using ::testing::ElementsAre;
using testing::FakeClock;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReportNumber;
using ::testing::StartsWith;

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

class CommandsTest : public ::testing::Test {
 protected:
  WatchFlags Watch(int64_t count) { return {.target = server_.address(), .count = count}; }

  FakeServer server_;
  FakeClock clock_;
  CapturedTerminal captured_;
};

TEST_F(CommandsTest, WatchPrintsARowAReportAndEndsAfterCount) {
  server_.PublishNumbers(1, 5);
  EXPECT_EQ(RunWatch(Watch(3), &clock_, captured_.get()), 0);
  EXPECT_THAT(Lines(captured_.out()),
              ElementsAre(StartsWith("branch      step"), StartsWith("cooldown    1000"),
                          StartsWith("cooldown    2000"), StartsWith("cooldown    3000")));
  EXPECT_THAT(captured_.error(), IsEmpty());
  EXPECT_TRUE(server_.requests()[0].without_layers());
}

TEST_F(CommandsTest, WatchPrintsJournalLinesAsJson) {
  server_.PublishNumbers(1, 2);
  WatchFlags flags = Watch(2);
  flags.json = true;
  EXPECT_EQ(RunWatch(flags, &clock_, captured_.get()), 0);
  EXPECT_EQ(captured_.out(), ToJson(ReportNumber(1)) + "\n" + ToJson(ReportNumber(2)) + "\n");
}

TEST_F(CommandsTest, WatchShowsGapsInTheTable) {
  server_.Publish(ReportNumber(3), /*missed=*/2);
  server_.Publish(ReportNumber(5), /*missed=*/1);
  EXPECT_EQ(RunWatch(Watch(2), &clock_, captured_.get()), 0);
  EXPECT_THAT(Lines(captured_.out()),
              ElementsAre("... 2 reports missed", StartsWith("branch      step"),
                          StartsWith("cooldown    3000"), "... 1 report missed",
                          StartsWith("cooldown    5000")));
}

TEST_F(CommandsTest, WatchKeepsGapsOutOfTheJson) {
  server_.Publish(ReportNumber(3), /*missed=*/2);
  WatchFlags flags = Watch(1);
  flags.json = true;
  EXPECT_EQ(RunWatch(flags, &clock_, captured_.get()), 0);
  EXPECT_EQ(captured_.out(), ToJson(ReportNumber(3)) + "\n");
  EXPECT_EQ(captured_.error(), "ptqwatch: ... 2 reports missed\n");
}

TEST_F(CommandsTest, WatchDrawsAndRemovesTheStatusLineOnATerminal) {
  server_.SetStatus([](v1::GetStatusResponse& status) { status.set_step(1234); });
  server_.PublishNumbers(1, 2);
  CapturedTerminal screen(/*is_terminal=*/true);
  EXPECT_EQ(RunWatch(Watch(2), &clock_, screen.get()), 0);
  const std::string out = screen.out();
  EXPECT_THAT(out, HasSubstr("step 1234 | newest report"));
  EXPECT_THAT(out, ::testing::EndsWith(std::string(kCleanTerminal)));
}

TEST_F(CommandsTest, WatchRepeatsTheHeaderEveryScreenful) {
  server_.PublishNumbers(1, 50);
  CapturedTerminal screen(/*is_terminal=*/true);  // a file: 24 rows
  EXPECT_EQ(RunWatch(Watch(50), &clock_, screen.get()), 0);
  int headers = 0;
  for (const std::string& line : Lines(screen.out())) headers += line.find("gptq3") != line.npos;
  EXPECT_EQ(headers, 3);  // above rows 1, 23 and 45
}

TEST_F(CommandsTest, WatchEndsQuietlyWhenItsReaderHasGone) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  {
    CapturedTerminal errors;
    Terminal terminal(ends[1], STDERR_FILENO, false, {});
    close(ends[0]);
    WatchFlags flags{.target = server_.address()};  // no report ever comes
    EXPECT_EQ(RunWatch(flags, &clock_, &terminal, {.tick = milliseconds(5)}), 0);
  }
  close(ends[1]);
}

TEST_F(CommandsTest, WatchFailsWithALineIfNothingAnswers) {
  const testing::RawServer web(testing::kHttpAnswer);
  EXPECT_EQ(RunWatch({.target = web.address()}, &clock_, captured_.get()), kExitFailed);
  EXPECT_THAT(Lines(captured_.error()), ElementsAre(HasSubstr("/metrics has another port")));
  EXPECT_THAT(captured_.out(), IsEmpty());
}

TEST_F(CommandsTest, WatchEndsWithTheRun) {
  server_.PublishNumbers(1, 1);
  server_.EndStreams(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the monitor has stopped"));
  EXPECT_EQ(RunWatch({.target = server_.address()}, &clock_, captured_.get()), 0);
  EXPECT_EQ(Lines(captured_.out()).size(), 2u);
}

TEST_F(CommandsTest, WatchGoesOnAfterTheRunWhenTold) {
  server_.PublishNumbers(1, 1);
  server_.EndStreams(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the monitor has stopped"));
  const WatchFlags flags{.target = server_.address(), .timeout_seconds = 0, .keep = true};
  EXPECT_EQ(RunWatch(flags, &clock_, captured_.get()), kExitFailed);
  EXPECT_THAT(captured_.error(), HasSubstr("connection lost"));
}

TEST_F(CommandsTest, WatchSaysThatTheRunDied) {
  server_.PublishNumbers(1, 3);
  server_.SetStatus([](v1::GetStatusResponse& status) {
    status.set_health(v1::HEALTH_SILENT);
    status.set_health_reason("no sign of life for 90 s");
  });
  const WatchOptions pace{.tick = milliseconds(5)};
  EXPECT_EQ(RunWatch({.target = server_.address()}, &clock_, captured_.get(), pace), kExitFailed);
  EXPECT_EQ(Lines(captured_.out()).size(), 4u);
  EXPECT_EQ(captured_.error(),
            "ptqwatch: the run died: no sign of life for 90 s; --keep waits for the next "
            "attempt\n");
}

TEST_F(CommandsTest, WatchReportsAFullDisk) {
  server_.PublishNumbers(1, 1);
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  const int error = memfd_create("error", 0);
  {
    Terminal terminal(full, error, false, {});
    EXPECT_EQ(RunWatch({.target = server_.address()}, &clock_, &terminal), kExitFailed);
  }
  char message[200] = {};
  EXPECT_GT(pread(error, message, sizeof(message) - 1, 0), 0);
  EXPECT_THAT(std::string(message), HasSubstr("No space left"));
  close(error);
  close(full);
}

TEST_F(CommandsTest, StatusShowsTheRunAndItsNewestReport) {
  server_.SetStatus([](v1::GetStatusResponse& status) { status.set_step(2010); });
  server_.PublishNumbers(1, 2);
  EXPECT_EQ(RunStatusCommand({.target = server_.address()}, &clock_, captured_.get()), 0);
  EXPECT_THAT(captured_.out(),
              AllOf(StartsWith("run        run-1"), HasSubstr("\nhealth     ok\n"),
                    HasSubstr("\nreport     2 of step 2000"), HasSubstr("\ngptq3 "),
                    HasSubstr("\nverdict    decay_degradation since step 14400")));
}

TEST_F(CommandsTest, StatusOfARunWithoutReportsIsJustTheStatus) {
  EXPECT_EQ(RunStatusCommand({.target = server_.address()}, &clock_, captured_.get()), 0);
  EXPECT_THAT(captured_.out(), ::testing::Not(HasSubstr("\nreport ")));
}

TEST_F(CommandsTest, StatusPrintsTheLineOfTheStatusFile) {
  server_.SetStatus([](v1::GetStatusResponse& status) {
    status.set_step(7);
    (*status.mutable_snapshots())["taken"] = 3;
  });
  EXPECT_EQ(RunStatusCommand({.target = server_.address(), .json = true}, &clock_, captured_.get()),
            0);
  EXPECT_THAT(captured_.out(),
              AllOf(StartsWith("{"), HasSubstr("\"run_id\":\"run-1\""), HasSubstr("\"step\":7,"),
                    HasSubstr("\"steps_total\":0"), HasSubstr("\"taken\":3,"),
                    ::testing::Not(HasSubstr("learning_rate")), HasSubstr("\"busy\":false"),
                    HasSubstr("\"health\":\"ok\"")));
  EXPECT_EQ(Lines(captured_.out()).size(), 1u);
}

TEST_F(CommandsTest, StatusFailsWithTheServersWord) {
  server_.FailCalls(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "unknown service"));
  EXPECT_EQ(RunStatusCommand({.target = server_.address()}, &clock_, captured_.get()), kExitFailed);
  EXPECT_THAT(Lines(captured_.error()),
              ElementsAre(AllOf(HasSubstr(server_.target()), HasSubstr("not a ptqwatch server"))));
}

TEST_F(CommandsTest, SnapshotIsRequested) {
  server_.PublishNumbers(1, 4);
  EXPECT_EQ(RunSnapshot({.target = server_.address()}, &clock_, captured_.get()), 0);
  ASSERT_EQ(server_.commands().size(), 1u);
  EXPECT_TRUE(std::holds_alternative<TakeSnapshot>(server_.commands()[0]));
  EXPECT_THAT(captured_.out(), HasSubstr("after sequence 4"));
}

TEST_F(CommandsTest, SnapshotWaitsForItsOwnReport) {
  AnalyzedReport periodic = ReportNumber(5), requested = ReportNumber(6);
  periodic.report.trigger = SnapshotTrigger::kInterval;
  requested.report.trigger = SnapshotTrigger::kRequest;
  server_.PublishNumbers(1, 4);
  server_.AnswerSnapshotsWith({periodic, requested});
  const SnapshotFlags flags{.target = server_.address(), .wait = true, .json = true};
  EXPECT_EQ(RunSnapshot(flags, &clock_, captured_.get()), 0);
  EXPECT_EQ(captured_.out(), ToJson(requested) + "\n");
}

TEST_F(CommandsTest, SnapshotIsNotContentWithAnEarlierRequest) {
  AnalyzedReport earlier = ReportNumber(5), requested = ReportNumber(6);
  earlier.report.trigger = requested.report.trigger = SnapshotTrigger::kRequest;
  server_.PublishNumbers(1, 4);
  server_.SetStatus([](v1::GetStatusResponse& status) { status.set_step(5001); });
  server_.AnswerSnapshotsWith({earlier, requested});
  const SnapshotFlags flags{.target = server_.address(), .wait = true, .json = true};
  EXPECT_EQ(RunSnapshot(flags, &clock_, captured_.get()), 0);
  EXPECT_EQ(captured_.out(), ToJson(requested) + "\n");
}

TEST_F(CommandsTest, SnapshotTakesTheLastOfARunForTheRequestedOne) {
  AnalyzedReport last = ReportNumber(5);
  last.report.trigger = SnapshotTrigger::kFinish;
  server_.AnswerSnapshotsWith({last});
  const SnapshotFlags flags{.target = server_.address(), .wait = true, .json = true};
  EXPECT_EQ(RunSnapshot(flags, &clock_, captured_.get()), 0);
  EXPECT_EQ(captured_.out(), ToJson(last) + "\n");
}

TEST_F(CommandsTest, SnapshotSaysThatTheRunMakesNoStepsAndThatItFailed) {
  // The listener's clock runs ahead at every look, so that ten seconds pass without a step.
  class RunningClock final : public Clock {
   public:
    explicit RunningClock(FakeServer* server) : server_(server) {}
    std::chrono::nanoseconds Monotonic() const override {
      if (++looks_ == 60) {
        server_->SetStatus(
            [](v1::GetStatusResponse& status) { (*status.mutable_snapshots())["failed"] = 1; });
      }
      return std::chrono::seconds(looks_);
    }
    double UnixSeconds() const override { return 1e9; }
    void SleepFor(std::chrono::nanoseconds, const std::atomic<bool>&) override {}

   private:
    FakeServer* const server_;
    mutable int64_t looks_ = 0;
  } clock(&server_);
  const SnapshotFlags flags{.target = server_.address(), .wait = true, .timeout_seconds = 1e6};
  EXPECT_EQ(RunSnapshot(flags, &clock, captured_.get(), {.tick = milliseconds(1)}), kExitFailed);
  EXPECT_THAT(
      Lines(captured_.error()),
      ElementsAre(HasSubstr("makes no steps"), HasSubstr("failed; the trainer's log says why")));
}

TEST_F(CommandsTest, WatchOnATerminalEscapesControlCharactersInJson) {
  AnalyzedReport report = ReportNumber(1);
  report.verdict.summary =
      "a\xC2\x9B"
      "31mb\x7F";
  server_.Publish(report);
  CapturedTerminal terminal(/*is_terminal=*/true);
  WatchFlags flags = Watch(1);
  flags.json = true;
  EXPECT_EQ(RunWatch(flags, &clock_, terminal.get()), 0);
  EXPECT_THAT(terminal.out(), HasSubstr("a\\u009b31mb\\u007f"));
  EXPECT_THAT(terminal.out(), ::testing::Not(HasSubstr("\xC2\x9B")));
}

TEST_F(CommandsTest, SnapshotGivesUpWaiting) {
  server_.PublishNumbers(1, 4);
  const SnapshotFlags flags{.target = server_.address(), .wait = true, .timeout_seconds = 0};
  EXPECT_EQ(RunSnapshot(flags, &clock_, captured_.get(), {.tick = milliseconds(5)}), kExitFailed);
  EXPECT_THAT(captured_.error(), HasSubstr("no report of the requested snapshot"));
}

TEST_F(CommandsTest, CommandsControlTheRun) {
  EXPECT_EQ(RunPause({.target = server_.address()}, captured_.get()), 0);
  EXPECT_EQ(RunResume({.target = server_.address()}, captured_.get()), 0);
  EXPECT_EQ(RunEvery({.target = server_.address(), .steps = 500}, captured_.get()), 0);
  const std::vector<Command> commands = server_.commands();
  ASSERT_EQ(commands.size(), 3u);
  EXPECT_TRUE(std::holds_alternative<Pause>(commands[0]));
  EXPECT_TRUE(std::holds_alternative<Resume>(commands[1]));
  EXPECT_EQ(std::get<SetEvery>(commands[2]).steps, 500);
  EXPECT_THAT(Lines(captured_.out()),
              ElementsAre(HasSubstr("ptqwatch resume"), "resumed", "a snapshot every 500 steps"));
}

TEST_F(CommandsTest, CommandsFailWithTheServersRefusal) {
  server_.FailCalls(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the monitor has stopped"));
  EXPECT_EQ(RunPause({.target = server_.address()}, captured_.get()), kExitFailed);
  EXPECT_EQ(RunResume({.target = server_.address()}, captured_.get()), kExitFailed);
  EXPECT_EQ(RunEvery({.target = server_.address(), .steps = 1}, captured_.get()), kExitFailed);
  EXPECT_EQ(Lines(captured_.error()).size(), 3u);
  EXPECT_THAT(captured_.error(), HasSubstr(server_.target() + " is over"));
}

v1::Event SampleEvent() {
  v1::Event event;
  event.set_kind(v1::EVENT_KIND_PHASE_CHANGE);
  event.set_severity(v1::SEVERITY_WARNING);
  event.set_step(1500);
  event.set_message("stable to decay\x1b[2J");
  event.set_number(1);
  return event;
}

TEST_F(CommandsTest, WatchShowsEventsAsLines) {
  server_.PublishEvent(SampleEvent());
  server_.PublishNumbers(1, 1);
  EXPECT_EQ(RunWatch(Watch(1), &clock_, captured_.get()), 0);
  EXPECT_THAT(Lines(captured_.out()),
              ElementsAre("-- step 1500, warning, phase_change: stable to decay?[2J",
                          StartsWith("branch      step"), StartsWith("cooldown    1000")));
}

TEST_F(CommandsTest, WatchPrintsEventsAsJournalLines) {
  server_.PublishEvent(SampleEvent());
  server_.PublishNumbers(1, 1);
  WatchFlags flags = Watch(1);
  flags.json = true;
  EXPECT_EQ(RunWatch(flags, &clock_, captured_.get()), 0);
  EXPECT_THAT(Lines(captured_.out()),
              ElementsAre(AllOf(StartsWith("{\"event\":"), HasSubstr("\"phase_change\"")),
                          ToJson(ReportNumber(1))));
}

TEST_F(CommandsTest, SnapshotOfARunThatEndsFails) {
  server_.EndStreams(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the monitor has stopped"));
  const SnapshotFlags flags{.target = server_.address(), .wait = true};
  EXPECT_EQ(RunSnapshot(flags, &clock_, captured_.get()), kExitFailed);
  EXPECT_THAT(captured_.error(), HasSubstr("the run ended"));
}

}  // namespace commands_test
}  // namespace ptqwatch::internal
