#include "client/remote_watch.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/fake_clock.h"
#include "unit/proto/client/fake_server.h"

namespace ptqwatch::internal {
namespace remote_watch_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FakeClock;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReportNumber;
using ::testing::StartsWith;

// Records its calls and runs a test's action at each.
class Recorder final : public WatchListener {
 public:
  bool OnReport(const AnalyzedReport& analyzed, int64_t missed) override {
    const int64_t sequence = analyzed.report.sequence;
    sequences.push_back(sequence);
    missed_before.push_back(missed);
    if (on_report) on_report(sequence);
    return sequences.size() < wanted;
  }
  void OnEvent(const Event& event) override { events.push_back(event.step); }
  void OnStatus(const RunStatus&) override { ++statuses; }
  void OnNotice(std::string_view text) override { notices.emplace_back(text); }
  bool OnTick(bool connected) override {
    if (on_tick) on_tick(connected);
    return !end;
  }

  size_t wanted = 1'000'000;
  bool end = false;
  std::function<void(int64_t)> on_report;
  std::function<void(bool)> on_tick;

  std::vector<int64_t> sequences;
  std::vector<int64_t> missed_before;
  std::vector<int64_t> events;
  std::vector<std::string> notices;
  int statuses = 0;
};

class RemoteWatchTest : public ::testing::Test {
 protected:
  absl::Status Follow(const HostPort& address) {
    return RemoteWatch(address, options_, &clock_, &recorder_).Run();
  }
  // In place of the server that was, on its port.
  void Restart(const std::string& run_id = "run-1") {
    const int port = server_->address().port;
    server_.reset();
    server_ = std::make_unique<FakeServer>(port, run_id);
  }

  std::unique_ptr<FakeServer> server_ = std::make_unique<FakeServer>();
  WatchOptions options_;
  FakeClock clock_;
  Recorder recorder_;
};

TEST_F(RemoteWatchTest, GetsWhatIsThereAndThenWhatComes) {
  server_->PublishNumbers(1, 3);
  recorder_.wanted = 4;
  recorder_.on_report = [&](int64_t sequence) {
    if (sequence == 3) server_->PublishNumbers(4, 4);
  };
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(recorder_.notices, IsEmpty());
}

TEST_F(RemoteWatchTest, StartsAfterTheSequenceItIsGiven) {
  server_->PublishNumbers(1, 5);
  options_.after_sequence = 3;
  options_.without_layers = true;
  recorder_.wanted = 2;
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(4, 5));
  EXPECT_TRUE(server_->requests()[0].without_layers());
  EXPECT_EQ(server_->requests()[0].run_id(), "run-1");
}

TEST_F(RemoteWatchTest, SinceNowGetsOnlyNewOnes) {
  server_->PublishNumbers(1, 5);
  options_.after_sequence.reset();
  options_.tick = milliseconds(5);
  recorder_.wanted = 1;
  bool published = false;
  recorder_.on_tick = [&](bool connected) {
    if (connected && !published) server_->PublishNumbers(6, 6);
    published = connected;
  };
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(6));
}

TEST_F(RemoteWatchTest, SinceNowOfARunWithoutReportsCountsNoneAsMissed) {
  options_.after_sequence.reset();
  options_.tick = milliseconds(5);
  recorder_.on_tick = [&](bool) { recorder_.end = !server_->requests().empty(); };
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_FALSE(server_->requests()[0].has_after_sequence());
}

TEST_F(RemoteWatchTest, ResumesWithoutGapOrDuplicateWhenTheServerComesBack) {
  server_->PublishNumbers(1, 2);
  recorder_.wanted = 4;
  int losses = 0;
  recorder_.on_report = [&](int64_t sequence) {
    if (sequence == 2) server_->EndStreams(grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone"));
  };
  recorder_.on_tick = [&](bool connected) {
    if (connected || losses++ > 0) return;
    Restart();
    server_->PublishNumbers(1, 4);  // it still has the old ones
  };
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(server_->requests().front().after_sequence(), 2);
  EXPECT_THAT(recorder_.notices,
              ElementsAre("connection lost, trying again (gone)", "connected again"));
}

TEST_F(RemoteWatchTest, SurvivesAServerThatVanishesAndSaysSoOnce) {
  server_->PublishNumbers(1, 1);
  recorder_.wanted = 2;
  const HostPort address = server_->address();
  recorder_.on_tick = [&](bool) {
    if (recorder_.sequences.size() == 1 && server_ != nullptr) server_.reset();
    if (server_ != nullptr || clock_.slept() < seconds(60)) return;
    server_ = std::make_unique<FakeServer>(address.port);
    server_->PublishNumbers(2, 2);
  };
  ASSERT_TRUE(Follow(address).ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(1, 2));
  EXPECT_THAT(recorder_.notices,
              ElementsAre(StartsWith("connection lost, trying again ("), "connected again"));
}

TEST_F(RemoteWatchTest, BacksOffToTheLongestWait) {
  server_->PublishNumbers(1, 1);
  const HostPort address = server_->address();
  options_.tick = seconds(60);  // a wait is one sleep
  std::vector<double> waits;
  std::chrono::nanoseconds before{0};
  recorder_.on_report = [&](int64_t) { server_.reset(); };
  recorder_.on_tick = [&](bool connected) {
    if (connected) return;
    const std::chrono::duration<double> slept = clock_.slept() - before;
    if (slept.count() > 0) waits.push_back(slept.count());
    before = clock_.slept();
    recorder_.end = waits.size() == 7;
  };
  ASSERT_TRUE(Follow(address).ok());
  EXPECT_THAT(waits, ElementsAre(0.5, 1, 2, 4, 8, 10, 10));
}

TEST_F(RemoteWatchTest, PassesGapsOn) {
  server_->Publish(ReportNumber(1));
  server_->Publish(ReportNumber(9), /*missed=*/7);
  recorder_.wanted = 2;
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_THAT(recorder_.missed_before, ElementsAre(0, 7));
}

TEST_F(RemoteWatchTest, AsksForLaterEventsWhenItConnectsAgain) {
  v1::Event event;
  for (const int64_t number : {1, 2}) {
    event.set_number(number);
    event.set_step(number);
    server_->PublishEvent(event);
  }
  server_->PublishNumbers(1, 1);
  server_->EndStreams(grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone"));
  recorder_.on_tick = [&](bool) { recorder_.end = server_->requests().size() == 2; };
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_THAT(recorder_.events, ElementsAre(1, 2));
  EXPECT_EQ(server_->requests()[1].after_event(), 2);
}

TEST_F(RemoteWatchTest, EndsWithTheReportsOfNowWhenAsked) {
  options_.until_now = true;
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_THAT(recorder_.sequences, IsEmpty());
  server_->PublishNumbers(1, 3);
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(1, 2, 3));
}

TEST_F(RemoteWatchTest, StartsAgainWithAnotherRun) {
  server_->PublishNumbers(1, 7);
  recorder_.wanted = 9;
  recorder_.on_report = [&](int64_t) {
    if (recorder_.sequences.size() != 7) return;
    server_->EndStreams(grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone"));
  };
  bool restarted = false;
  recorder_.on_tick = [&](bool connected) {
    if (connected || restarted) return;
    restarted = true;
    Restart("run-2");
    server_->PublishNumbers(1, 2);
  };
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(1, 2, 3, 4, 5, 6, 7, 1, 2));
  EXPECT_THAT(recorder_.notices, ElementsAre(HasSubstr("connection lost"),
                                             AllOf(HasSubstr("another run"),
                                                   HasSubstr("'run-2' in place of 'run-1'"))));
  EXPECT_EQ(server_->requests().front().run_id(), "run-2");
}

TEST_F(RemoteWatchTest, StartsAgainWhenTheRunWentBack) {
  server_->PublishNumbers(1, 3);
  recorder_.wanted = 4;
  recorder_.on_report = [&](int64_t sequence) {
    if (sequence != 3) return;
    server_->EndStreams(grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "beyond the newest report"));
  };
  bool restarted = false;
  recorder_.on_tick = [&](bool connected) {
    if (connected || restarted) return;
    restarted = true;
    Restart();
    server_->PublishNumbers(1, 1);
  };
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(1, 2, 3, 1));
  EXPECT_THAT(recorder_.notices[0], HasSubstr("starts again before report 3"));
}

TEST_F(RemoteWatchTest, DropsWhatAServerSendsTwice) {
  server_->PublishNumbers(5, 6);
  server_->PublishAt(7, ReportNumber(5));
  server_->PublishNumbers(8, 8);
  recorder_.wanted = 3;
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(5, 6, 8));
}

TEST_F(RemoteWatchTest, EndsWithTheMonitorOnlyWhenAsked) {
  server_->PublishNumbers(1, 2);
  server_->EndStreams(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the monitor has stopped"));
  options_.exit_when_done = true;
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(1, 2));
  EXPECT_THAT(recorder_.notices, IsEmpty());

  options_.exit_when_done = false;
  recorder_.on_tick = [&](bool connected) { recorder_.end = !connected; };
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_THAT(recorder_.notices,
              ElementsAre("connection lost, trying again (the monitor has stopped)"));
}

TEST_F(RemoteWatchTest, GoesOnWhenTheServerEndsTheStreamWithoutError) {
  server_->PublishNumbers(1, 1);
  server_->EndStreams(grpc::Status::OK);
  recorder_.on_tick = [&](bool connected) { recorder_.end = !connected; };
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_THAT(recorder_.notices, ElementsAre(HasSubstr("the server ended the stream")));
}

TEST_F(RemoteWatchTest, GivesUpAFirstConnectionAfterTenSeconds) {
  const HostPort address = server_->address();
  server_.reset();
  const absl::Status followed = Follow(address);
  EXPECT_TRUE(absl::IsUnavailable(followed)) << followed;
  EXPECT_THAT(std::string(followed.message()),
              AllOf(HasSubstr(address.ToString()), HasSubstr("connection refused")));
  EXPECT_EQ(clock_.slept(), seconds(10));
  EXPECT_THAT(recorder_.notices, IsEmpty());
}

TEST_F(RemoteWatchTest, WaitsForAServerThatIsLate) {
  const HostPort address = server_->address();
  server_.reset();
  recorder_.wanted = 1;
  recorder_.on_tick = [&](bool) {
    if (server_ != nullptr || clock_.slept() < seconds(5)) return;
    server_ = std::make_unique<FakeServer>(address.port);
    server_->PublishNumbers(1, 1);
  };
  ASSERT_TRUE(Follow(address).ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(1));
}

TEST_F(RemoteWatchTest, GivesUpALostServerAfterTheTimeout) {
  server_->PublishNumbers(1, 1);
  const HostPort address = server_->address();
  options_.give_up_after = seconds(3);
  recorder_.on_report = [&](int64_t) { server_.reset(); };
  EXPECT_TRUE(absl::IsUnavailable(Follow(address)));
  EXPECT_EQ(clock_.slept(), seconds(3));
}

TEST_F(RemoteWatchTest, GivesUpAfterAMinuteWhenItIsToEndWithTheRun) {
  server_->PublishNumbers(1, 1);
  const HostPort address = server_->address();
  options_.exit_when_done = true;
  recorder_.on_report = [&](int64_t) { server_.reset(); };
  EXPECT_TRUE(absl::IsUnavailable(Follow(address)));
  EXPECT_EQ(clock_.slept(), seconds(60));
}

TEST_F(RemoteWatchTest, BeginsAgainWithARunOfTheSameNameThatWasStartedAgain) {
  server_->PublishNumbers(1, 2);
  server_->SetStatus([](v1::GetStatusResponse& status) { status.set_steps_total(900); });
  const HostPort address = server_->address();
  recorder_.wanted = 5;
  recorder_.on_report = [&](int64_t sequence) {
    if (sequence != 2 || recorder_.sequences.size() != 2) return;
    server_.reset();
    server_ = std::make_unique<FakeServer>(address.port);
    server_->SetStatus([](v1::GetStatusResponse& status) { status.set_steps_total(800); });
    server_->PublishNumbers(1, 3);
  };
  ASSERT_TRUE(Follow(address).ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(1, 2, 1, 2, 3));
  EXPECT_THAT(recorder_.notices, ::testing::Contains(HasSubstr("was started again")));
}

TEST_F(RemoteWatchTest, FailsAtOnceIfWaitingDoesNotHelp) {
  const std::vector<std::pair<grpc::StatusCode, std::string>> cases = {
      {grpc::StatusCode::RESOURCE_EXHAUSTED, "is at its limit: why"},
      {grpc::StatusCode::OUT_OF_RANGE, "has not reached that report: why"},
      {grpc::StatusCode::NOT_FOUND, "follows another run: why"},
      {grpc::StatusCode::UNIMPLEMENTED, "not a ptqwatch server"},
      {grpc::StatusCode::INVALID_ARGUMENT, "refuses: why"}};
  for (const auto& [code, text] : cases) {
    server_->EndStreams(grpc::Status(code, "why"));
    const absl::Status followed = Follow(server_->address());
    EXPECT_EQ(static_cast<int>(followed.code()), static_cast<int>(code));
    EXPECT_THAT(std::string(followed.message()), HasSubstr(text));
  }
  EXPECT_EQ(clock_.slept(), seconds(0));
}

TEST_F(RemoteWatchTest, TriesAgainOnceItHasStreamed) {
  server_->PublishNumbers(1, 1);
  server_->EndStreams(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many"));
  int waits = 0;
  recorder_.on_tick = [&](bool connected) { recorder_.end = !connected && ++waits > 8; };
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_THAT(recorder_.notices, ElementsAre("connection lost, trying again (too many)"));
}

TEST_F(RemoteWatchTest, FailsOnAMessageThatIsTooLarge) {
  server_->PadReports(size_t{kMaxMessageBytes} + 1);
  server_->PublishNumbers(1, 1);
  const absl::Status followed = Follow(server_->address());
  EXPECT_TRUE(absl::IsResourceExhausted(followed)) << followed.code();
  EXPECT_THAT(std::string(followed.message()), HasSubstr("larger than the 64 MiB"));
  EXPECT_THAT(recorder_.sequences, IsEmpty());
}

TEST_F(RemoteWatchTest, AsksForTheStatusBesideTheStream) {
  options_.status_every = options_.tick;
  options_.tick = milliseconds(5);
  recorder_.on_tick = [&](bool) {
    clock_.Advance(options_.tick);
    recorder_.end = recorder_.statuses >= 4;
  };
  ASSERT_TRUE(Follow(server_->address()).ok());
  EXPECT_GE(recorder_.statuses, 4);
}

TEST_F(RemoteWatchTest, EndsWhenTheListenerSaysSoWhileThereIsNoServer) {
  const HostPort address = server_->address();
  server_.reset();
  recorder_.end = true;
  EXPECT_TRUE(Follow(address).ok());
}

}  // namespace remote_watch_test
}  // namespace ptqwatch::internal
