#include "children/worker_keeper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stop_token>
#include <string>
#include <thread>

#include "handover/shared_server.h"
#include "ptqwatch/log.h"
#include "support/eventually.h"

namespace ptqwatch::internal {
namespace worker_keeper_test {

using std::chrono::milliseconds;
using testing::Eventually;

struct WorkerKeeperTest : ::testing::Test {
  WorkerKeeperTest() { SetLogSink(Severity::kError, nullptr); }

  std::unique_ptr<WorkerKeeper> Run(const std::string& script, std::vector<int> files = {},
                                    int final_status = -1) {
    auto keeper = WorkerKeeper::Start(
        {.program = "/bin/sh",
         .arguments = {"-c", script, "sh"},
         .environment = {"PATH=/usr/bin:/bin"},
         .files = std::move(files),
         .final_status = final_status},
        [this] { ++ended; }, {.first_pause = milliseconds(5), .longest_pause = milliseconds(10)});
    EXPECT_TRUE(keeper.ok()) << keeper.status();
    return *std::move(keeper);
  }

  std::atomic<int> ended{0};
};

bool HasChildren() { return waitpid(-1, nullptr, WNOHANG) >= 0; }

TEST_F(WorkerKeeperTest, StartsAgainWhatEnds) {
  auto keeper = Run("exit 3");
  EXPECT_TRUE(Eventually([&] { return keeper->state().restarts >= 2; }));
  EXPECT_EQ(keeper->state().end, "exit status 3");
  EXPECT_FALSE(keeper->state().over);
  keeper->Stop(milliseconds(0));
  EXPECT_TRUE(keeper->state().over);
  EXPECT_GE(ended, 2);
  EXPECT_FALSE(HasChildren());
}

TEST_F(WorkerKeeperTest, DoesNotRepeatAFinalStatus) {
  auto keeper = Run("exit 78", {}, 78);
  EXPECT_TRUE(Eventually([&] { return keeper->state().over; }));
  EXPECT_EQ(keeper->state().restarts, 0);
  EXPECT_EQ(ended, 1);
}

TEST_F(WorkerKeeperTest, KillsWhatDoesNotEndInTime) {
  auto keeper = Run("trap '' TERM INT; exec sleep 100");
  EXPECT_TRUE(Eventually([&] { return keeper->state().process > 0; }));
  keeper->Stop(milliseconds(20));
  EXPECT_EQ(keeper->state().end, "signal 9");
  EXPECT_EQ(keeper->state().process, 0);
  EXPECT_FALSE(HasChildren());
}

TEST_F(WorkerKeeperTest, WaitsForAnEndOnRequest) {
  int gate[2];
  ASSERT_EQ(pipe2(gate, O_CLOEXEC), 0);
  auto keeper = Run("read -r line <&3", {gate[0]});
  EXPECT_TRUE(Eventually([&] { return keeper->state().process > 0; }));
  close(gate[1]);
  keeper->Stop(std::chrono::seconds(20));
  EXPECT_EQ(keeper->state().end, "exit status 1");
  close(gate[0]);
}

TEST_F(WorkerKeeperTest, PassesDescriptorsAndTheReasonOfARestart) {
  int said[2];
  ASSERT_EQ(pipe2(said, O_CLOEXEC), 0);
  const int other = open("/dev/null", O_RDONLY);  // inherited by no process
  auto keeper = Run(
      "echo \"$PTQWATCH_REPLACES $(ls /proc/self/fd | tr '\\n' ' ')\" >&3; kill -9 $$", {said[1]});
  EXPECT_TRUE(Eventually([&] { return keeper->state().restarts >= 1 && ended >= 2; }));
  keeper->Stop(milliseconds(0));
  close(said[1]);
  std::string text(4096, ' ');
  text.resize(static_cast<size_t>(read(said[0], text.data(), text.size())));
  EXPECT_NE(
      text.find("the process that measures ended (signal 9); another one starts 0.005 s later"),
      std::string::npos)
      << text;
  // `ls` itself opens 4.
  EXPECT_EQ(text.substr(0, text.find('\n')), " 0 1 2 3 4 ");
  close(said[0]);
  close(other);
}

TEST_F(WorkerKeeperTest, SaysThatAProgramIsMissing) {
  auto keeper =
      WorkerKeeper::Start({.program = "/no/such/python"}, [] {}, {.first_pause = milliseconds(5)});
  ASSERT_TRUE(keeper.ok());
  EXPECT_TRUE(Eventually([&] { return !(*keeper)->state().end.empty(); }));
  EXPECT_EQ((*keeper)->state().end,
            "'/no/such/python' could not be started: No such file or directory");
}

TEST_F(WorkerKeeperTest, LeavesItsProcessToTheParentAfterAFork) {
  auto keeper = Run("exec sleep 100");
  EXPECT_TRUE(Eventually([&] { return keeper->state().process > 0; }));
  const pid_t worker = keeper->state().process;
  const pid_t child = fork();
  if (child == 0) {
    keeper->Stop(milliseconds(0));
    _exit(kill(worker, 0) == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(keeper->state().process, worker);
}

TEST(SharedServerTest, GivesEachNewsOnce) {
  SharedServer server;
  uint64_t seen = 0;
  EXPECT_FALSE(server.Read(seen));
  server.Write({.status = {.state = ServerState::kServing, .metrics = "http://h:1/metrics"},
                .message = std::string(1000, 'x'),
                .failed = true});
  const auto news = server.Read(seen);
  ASSERT_TRUE(news);
  EXPECT_EQ(news->status.state, ServerState::kServing);
  EXPECT_EQ(news->status.metrics, "http://h:1/metrics");
  EXPECT_EQ(news->message, std::string(511, 'x'));
  EXPECT_TRUE(news->failed);
  EXPECT_FALSE(server.Read(seen));
}

TEST(SharedServerTest, GivesNoMixtureOfTwoNews) {
  SharedServer server;
  std::jthread writer([&](const std::stop_token& stop) {
    for (int i = 0; !stop.stop_requested(); ++i) {
      const std::string text(1 + i % 500, static_cast<char>('a' + i % 26));
      server.Write({.status = {.metrics = text, .grpc = text, .reason = text}, .message = text});
    }
  });
  uint64_t seen = 0;
  for (int read = 0; read < 2000;) {
    const auto news = server.Read(seen);
    if (!news) continue;
    ++read;
    ASSERT_EQ(news->message, std::string(news->message.size(), news->message[0]));
    ASSERT_EQ(news->status.metrics, news->message);
    ASSERT_EQ(news->status.grpc, news->message);
    ASSERT_EQ(news->status.reason, news->message);
  }
}

}  // namespace worker_keeper_test
}  // namespace ptqwatch::internal
