#include "journal/run_endpoint.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/host_name.h"
#include "base/unix_socket.h"
#include "gmock/gmock.h"
#include "journal/control_message.h"
#include "journal/run_control.h"
#include "journal/status_file.h"
#include "support/journal_fixture.h"

namespace ptqwatch::internal {
namespace run_endpoint_test {

using std::chrono::milliseconds;

// Remembers what it was told.
class NotingControl final : public Control {
 public:
  absl::StatusOr<int64_t> Do(const Command& command) override {
    std::lock_guard<std::mutex> lock(mutex_);
    notes_.push_back(CommandToJson(command));
    return answer;
  }
  absl::StatusOr<int64_t> answer = 7;
  std::vector<std::string> notes() {
    std::lock_guard<std::mutex> lock(mutex_);
    return notes_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> notes_;
};

class RunEndpointTest : public ::testing::Test {
 protected:
  void Start(milliseconds interval = milliseconds(1000)) {
    auto lock = RunLock::Take(dir_.path());
    ASSERT_TRUE(lock.ok()) << lock.status();
    endpoint_ = MakeRunEndpoint(*std::move(lock), interval);
    ASSERT_TRUE(endpoint_->Start(&source_, &control_).ok());
  }
  // The first one may still be to come.
  RunStatus WaitForStatus(int64_t step) {
    const auto until = std::chrono::steady_clock::now() + seconds(20);
    while (std::chrono::steady_clock::now() < until) {
      const absl::StatusOr<RunStatus> status = ReadStatusFile(dir_.path());
      if (status.ok() && status->monitor.step == step) return *status;
      EXPECT_TRUE(status.ok() || absl::IsNotFound(status.status())) << status.status();
      std::this_thread::yield();
    }
    ADD_FAILURE() << "no status of step " << step;
    return {};
  }
  mode_t ModeOf(const char* name) {
    struct stat info {};
    EXPECT_EQ(lstat(dir_.File(name).c_str(), &info), 0) << name;
    return info.st_mode & 0777;
  }

  TempDir dir_;
  FakeStatusSource source_{dir_.path()};
  NotingControl control_;
  std::unique_ptr<Exporter> endpoint_;
};

TEST_F(RunEndpointTest, KeepsTheStatusFileFresh) {
  Start(milliseconds(1));
  const RunStatus first = WaitForStatus(16010);
  EXPECT_EQ(first.run.run_id, "run-1");
  EXPECT_EQ(first.process_id, getpid());
  EXPECT_EQ(first.host, HostName());
  EXPECT_GT(first.time_unix_seconds, 1.6e9);
  source_.Set([](MonitorStatus& status) { status.step = 16011; });
  EXPECT_GE(WaitForStatus(16011).time_unix_seconds, first.time_unix_seconds);
  EXPECT_EQ(ModeOf(kStatusFileName), 0600u);
}

TEST_F(RunEndpointTest, WritesTheLastStatusAtStop) {
  Start(std::chrono::hours(1));
  WaitForStatus(16010);
  source_.Set([](MonitorStatus& status) {
    status.step = 20000;
    status.health = Health::kStopped;
  });
  endpoint_->Stop(seconds(20));
  EXPECT_EQ(WaitForStatus(20000).monitor.health, Health::kStopped);
  EXPECT_FALSE(std::filesystem::exists(dir_.File(kControlSocketName)));
  EXPECT_TRUE(RunLock::Take(dir_.path()).ok());  // not held any more
}

TEST_F(RunEndpointTest, TakesCommandsFromTheOwner) {
  Start();
  EXPECT_EQ(ModeOf(kControlSocketName), 0600u);
  RunControl run(dir_.path());
  EXPECT_EQ(run.Do(TakeSnapshot{}).value(), 7);
  EXPECT_TRUE(run.Do(MakeSlice{QuantizationMethod::kNf4, 4, 9, 500}).ok());
  control_.answer = absl::InvalidArgumentError("every = 0: must be positive");
  EXPECT_EQ(run.Do(SetEvery{0}).status(), control_.answer.status());
  EXPECT_THAT(control_.notes(),
              ElementsAre(CommandToJson(TakeSnapshot{}),
                          CommandToJson(MakeSlice{QuantizationMethod::kNf4, 4, 9, 500}),
                          CommandToJson(SetEvery{0})));
}

TEST_F(RunEndpointTest, HasNoLimitOnThePath) {
  const std::string deep = dir_.File(std::string(120, 'd'));
  std::filesystem::create_directory(deep);
  FakeStatusSource source(deep);
  auto endpoint = MakeRunEndpoint(*RunLock::Take(deep));
  ASSERT_TRUE(endpoint->Start(&source, &control_).ok());
  EXPECT_TRUE(RunControl(deep).Do(Pause{}).ok());
}

TEST_F(RunEndpointTest, SaysWhenNoRunAnswers) {
  const absl::Status none = RunControl(dir_.path()).Do(Pause{}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(none.message()), HasSubstr(dir_.path()));
  Start();
  endpoint_->Stop(seconds(20));
  EXPECT_EQ(RunControl(dir_.path()).Do(Pause{}).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RunEndpointTest, ReplacesTheSocketOfACrashedProcess) {
  {
    auto crashed = UnixListener::Open(dir_.path(), kControlSocketName);
    ASSERT_TRUE(crashed.ok());
    std::filesystem::rename(dir_.File(kControlSocketName), dir_.File("kept"));
  }
  std::filesystem::rename(dir_.File("kept"), dir_.File(kControlSocketName));
  Start();
  EXPECT_TRUE(RunControl(dir_.path()).Do(Resume{}).ok());
}

TEST_F(RunEndpointTest, KeepsAFileThatIsNotASocket) {
  LogCatcher log;
  WriteFile(dir_.File(kControlSocketName), "mine");
  Start();
  EXPECT_THAT(log.WaitForFirst(), HasSubstr(kControlSocketName));
  EXPECT_EQ(ReadFile(dir_.File(kControlSocketName)), "mine");
  WaitForStatus(16010);
}

TEST_F(RunEndpointTest, OutlivesClientsThatSayNonsenseOrNothing) {
  Start();
  for (const std::string line : {"", "{}", "[[[[", "{\"command\": \"format\"}",
                                 "{\"command\": \"every\", \"steps\": \"x\"}"}) {
    auto client = UnixConnection::Open(dir_.path(), kControlSocketName);
    ASSERT_TRUE(client.ok());
    ASSERT_TRUE(client->SendLine(line, seconds(20)).ok());
    const absl::StatusOr<std::string> answer = client->ReceiveLine(kMaxControlBytes, seconds(20));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(AnswerFromJson(*answer).status().code(), absl::StatusCode::kInvalidArgument) << line;
  }
  auto long_winded = UnixConnection::Open(dir_.path(), kControlSocketName);
  ASSERT_TRUE(long_winded.ok());
  EXPECT_TRUE(long_winded->SendLine(std::string(5000, 'x'), seconds(20)).ok());
  EXPECT_FALSE(long_winded->ReceiveLine(kMaxControlBytes, seconds(20)).ok());
  auto silent = UnixConnection::Open(dir_.path(), kControlSocketName);
  ASSERT_TRUE(silent.ok());
  EXPECT_TRUE(RunControl(dir_.path()).Do(Pause{}).ok());  // after half a second
  EXPECT_THAT(control_.notes(), ElementsAre(CommandToJson(Pause{})));
}

TEST_F(RunEndpointTest, StopIsNotKeptByASilentClient) {
  Start();
  auto silent = UnixConnection::Open(dir_.path(), kControlSocketName);
  ASSERT_TRUE(silent.ok());
  endpoint_->Stop(seconds(20));
  EXPECT_TRUE(RunLock::Take(dir_.path()).ok());
}

TEST_F(RunEndpointTest, OnlyTheOwnerMaySendCommands) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  constexpr uid_t kSomebody = 65534;
  ASSERT_EQ(chmod(dir_.path().c_str(), 0777), 0);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t other = fork();
  if (other == 0) {
    if (setuid(kSomebody) != 0) _exit(1);
    auto listener = UnixListener::Open(dir_.path(), kControlSocketName);
    if (!listener.ok() || write(ready[1], "x", 1) != 1) _exit(2);
    while (true) pause();
  }
  close(ready[1]);  // so that the child's end is seen
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const absl::Status paused = RunControl(dir_.path()).Do(Pause{}).status();
  EXPECT_TRUE(absl::IsPermissionDenied(paused)) << paused;
  EXPECT_THAT(std::string(paused.message()), HasSubstr("user 65534"));
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  close(ready[0]);
}

// Every alternative of Command, with its members set.
TEST(ControlMessage, EveryCommandSurvivesItsJson) {
  const std::vector<std::pair<Command, std::string>> commands = {
      {TakeSnapshot{}, R"({"command":"snapshot"})"},
      {Pause{}, R"({"command":"pause"})"},
      {Resume{}, R"({"command":"resume"})"},
      {SetEvery{12}, R"({"command":"every","steps":12})"},
      {MakeSlice{QuantizationMethod::kAwq, 4, 11, 7},
       R"({"command":"slice","method":"awq","bits":4,"points":11,"at_step":7})"},
      {StartCooldown{3200}, R"({"command":"cooldown","decay_steps":3200})"},
      {CancelCooldown{}, R"({"command":"cancel_cooldown"})"}};
  ASSERT_EQ(commands.size(), std::variant_size_v<Command>);
  for (size_t i = 0; i < commands.size(); ++i) {
    const auto& [command, json] = commands[i];
    EXPECT_EQ(command.index(), i);
    EXPECT_EQ(CommandToJson(command), json);
    const absl::StatusOr<Command> read = CommandFromJson(json);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->index(), command.index()) << json;
    EXPECT_EQ(CommandToJson(*read), json);
  }
}

TEST(ControlMessage, AnswersSurviveTheirJson) {
  EXPECT_EQ(AnswerFromJson(AnswerToJson(42)).value(), 42);
  const absl::Status refused = absl::ResourceExhaustedError(std::string(10'000, 'y'));
  const std::string line = AnswerToJson(refused);
  EXPECT_LT(line.size(), kMaxControlBytes);
  EXPECT_EQ(AnswerFromJson(line).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(AnswerFromJson("?").status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(AnswerFromJson("{\"code\": 99}").status().code(), absl::StatusCode::kInternal);
}

}  // namespace run_endpoint_test
}  // namespace ptqwatch::internal
