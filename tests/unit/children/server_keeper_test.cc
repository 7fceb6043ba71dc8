#include "children/server_keeper.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "children/server_launch.h"
#include "children/server_program.h"
#include "ptqwatch/config.h"
#include "ptqwatch/report.h"
#include "support/eventually.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ReadFile;
using ::testing::StartsWith;
using testing::TempDir;
using testing::WriteFile;

std::string Hello(const std::string& members = "") {
  ServerHello hello{.version = PTQWATCH_VERSION_STRING,
                    .journal_schema = kReportSchemaVersion,
                    .process = 1 << 21,
                    .http = "127.0.0.1:9",
                    .grpc = "127.0.0.1:10"};
  hello.error = members;
  return HelloToJson(hello);
}

class ServerKeeperTest : public ::testing::Test {
 protected:
  // A stand-in for the server: a script in its own folder.
  std::string Program(const std::string& script) {
    const std::string path = dir_.path() + "/ptqwatch";
    WriteFile(path, "#!/bin/sh\n" + script);
    chmod(path.c_str(), 0755);
    return path;
  }
  // Shell commands that run as long as the folder exists.
  std::string Lives() const { return "while [ -e " + dir_.path() + " ]; do sleep 0.05; done\n"; }
  std::string Serves() const { return "echo '" + Hello() + "' >&3\n" + Lives(); }

  std::unique_ptr<ServerKeeper> Start(const std::string& program, ServeOptions options = {}) {
    options.program = program;
    auto keeper =
        ServerKeeper::Start(options, {.run_dir = dir_.path()},
                            {nullptr,
                             [this](const absl::Status& failure, const std::string& message) {
                               ++changes_;
                               if (!failure.ok()) failures_ = failures_ + message + "\n";
                             }},
                            {.first_pause = milliseconds(1),
                             .longest_pause = milliseconds(4),
                             .short_life = milliseconds(0),
                             .hello = milliseconds(20'000)});
    EXPECT_TRUE(keeper.ok()) << keeper.status();
    return keeper.ok() ? *std::move(keeper) : nullptr;
  }
  std::string InFolder(const std::string& name) const { return dir_.File(name); }

  TempDir dir_;
  std::atomic<int> changes_ = 0;
  std::string failures_;
};

TEST_F(ServerKeeperTest, TellsWhereItIsServed) {
  const auto keeper = Start(Program(Serves()));
  const ServerStatus status = keeper->WaitForHello(milliseconds(20'000));
  EXPECT_EQ(status.state, ServerState::kServing);
  EXPECT_EQ(status.metrics, "http://127.0.0.1:9/metrics");
  EXPECT_EQ(status.grpc, "127.0.0.1:10");
  EXPECT_EQ(status.restarts, 0);
}

TEST_F(ServerKeeperTest, TellsThatAServerStarts) {
  std::vector<ServerState> states;
  const auto listen = [&](const ServerStatus& status, pid_t) { states.push_back(status.state); };
  const auto keeper = ServerKeeper::Start({.program = Program(Serves())}, {.run_dir = dir_.path()},
                                          {listen, nullptr}, {});
  ASSERT_TRUE(keeper.ok()) << keeper.status();
  (*keeper)->WaitForHello(milliseconds(20'000));
  EXPECT_THAT(states, ElementsAre(ServerState::kStarting, ServerState::kServing));
}

TEST_F(ServerKeeperTest, HandsDownNothingOfTheTrainers) {
  setenv("OMP_NUM_THREADS", "3", 1);
  setenv("LC_TIME", "C", 1);
  const int open_here = open("/dev/null", O_RDONLY);  // without O_CLOEXEC
  signal(SIGUSR1, SIG_IGN);
  const auto keeper =
      Start(Program("ls /proc/self/fd > " + InFolder("files") + "\nenv > " + InFolder("env") +
                    "\ngrep SigIgn /proc/self/status > " + InFolder("ignored") + "\n" + Serves()),
            {.environment = {{"MY_VARIABLE", "7"}}});
  ASSERT_EQ(keeper->WaitForHello(milliseconds(20'000)).state, ServerState::kServing);
  close(open_here);
  signal(SIGUSR1, SIG_DFL);
  unsetenv("OMP_NUM_THREADS");
  // ls itself opens one folder, and the shell may have opened its script.
  std::istringstream files(ReadFile(InFolder("files")));
  for (int file = 0; files >> file;) EXPECT_TRUE(file <= 5 || file == 10) << file;
  const std::string environment = ReadFile(InFolder("env"));
  EXPECT_THAT(environment, HasSubstr("MY_VARIABLE=7\n"));
  EXPECT_THAT(environment, HasSubstr("LC_TIME=C\n"));
  EXPECT_THAT(environment, Not(HasSubstr("OMP_NUM_THREADS")));
  // glibc itself ignores two signals above 31.
  const std::string ignored = ReadFile(InFolder("ignored"));
  EXPECT_EQ(std::stoull(ignored.substr(ignored.find('\t')), nullptr, 16) & 0x7fffffff, 0u);
}

TEST_F(ServerKeeperTest, StartsAServerThatEndedAgain) {
  // The first two end after their hello.
  const auto keeper =
      Start(Program("echo x >> " + InFolder("lives") + "\necho '" + Hello() +
                    "' >&3\n[ $(wc -l < " + InFolder("lives") + ") -lt 3 ] && exit 0\n" + Lives()));
  EXPECT_TRUE(Eventually([&] {
    const ServerStatus status = keeper->status();
    return status.state == ServerState::kServing && status.restarts == 2;
  }));
  EXPECT_EQ(failures_, "");
}

TEST_F(ServerKeeperTest, KeepsThePortsOfTheFirstServer) {
  const auto keeper =
      Start(Program("echo \"$@\" >> " + InFolder("words") + "\necho '" + Hello() +
                    "' >&3\n[ $(wc -l < " + InFolder("words") + ") -lt 2 ] && exit 0\n" + Lives()),
            {.http = "127.0.0.1:0", .grpc = "127.0.0.1:0"});
  EXPECT_TRUE(Eventually([&] { return keeper->status().restarts == 1; }));
  EXPECT_TRUE(Eventually([&] { return keeper->status().state == ServerState::kServing; }));
  const std::string words = ReadFile(InFolder("words"));
  EXPECT_THAT(words, StartsWith("serve --http=127.0.0.1:0 --grpc=127.0.0.1:0 "));
  EXPECT_THAT(words, HasSubstr("\nserve --http=127.0.0.1:9 --grpc=127.0.0.1:10 "));
}

TEST_F(ServerKeeperTest, SaysOnceWhyItCannotServe) {
  const auto keeper =
      Start(Program("echo x >> " + InFolder("lives") + "\necho '" +
                    Hello("--http 127.0.0.1:9: Address already in use") + "' >&3\nexit 1\n"));
  EXPECT_TRUE(Eventually([&] { return ReadFile(InFolder("lives")).size() >= 6; }));
  keeper->Stop(milliseconds(10'000));
  const ServerStatus status = keeper->status();
  EXPECT_EQ(status.state, ServerState::kFailed);
  EXPECT_THAT(status.reason, HasSubstr("Address already in use"));
  EXPECT_EQ(changes_, 1);
  EXPECT_THAT(failures_, HasSubstr("to serve it: ptqwatch serve " + dir_.path()));
}

TEST_F(ServerKeeperTest, RefusesAnotherVersionByName) {
  std::string hello = Hello();
  hello.replace(hello.find(PTQWATCH_VERSION_STRING), 5, "7.8.9");
  const auto keeper = Start(Program("echo '" + hello + "' >&3\n" + Lives()));
  const ServerStatus status = keeper->WaitForHello(milliseconds(20'000));
  EXPECT_EQ(status.state, ServerState::kFailed);
  EXPECT_THAT(status.reason, HasSubstr("is version 7.8.9, and this library is"));
}

TEST_F(ServerKeeperTest, SaysWhereTheOutputIsOfAProgramThatEnds) {
  const auto keeper = Start(Program("echo unhappy\nexit 3\n"));
  const ServerStatus status = keeper->WaitForHello(milliseconds(20'000));
  EXPECT_EQ(status.state, ServerState::kFailed);
  EXPECT_THAT(status.reason, HasSubstr("/serve.log'"));
  EXPECT_THAT(ReadFile(InFolder("serve.log")), StartsWith("unhappy\n"));
}

TEST_F(ServerKeeperTest, RefusesAFileThatIsNotAProgram) {
  const auto keeper = Start(Program("echo 'Hello World' >&3\n" + Lives()));
  const ServerStatus status = keeper->WaitForHello(milliseconds(20'000));
  EXPECT_EQ(status.state, ServerState::kFailed);
  EXPECT_THAT(status.reason, HasSubstr("'Hello World', so it is not a `ptqwatch`"));
}

TEST_F(ServerKeeperTest, StopsWhileTheServerHasNotSpoken) {
  const auto keeper = Start(Program(Lives()));
  const auto begun = std::chrono::steady_clock::now();
  keeper->Stop(milliseconds(20'000));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10));
}

TEST_F(ServerKeeperTest, WorksInATrainerThatIgnoresItsChildren) {
  signal(SIGCHLD, SIG_IGN);
  const auto keeper = Start(Program(Serves()));
  EXPECT_EQ(keeper->WaitForHello(milliseconds(20'000)).state, ServerState::kServing);
  signal(SIGCHLD, SIG_DFL);
}

TEST_F(ServerKeeperTest, LeavesNoChildBehind) {
  // The real program also forks once, and the first process ends.
  const auto keeper = Start(Program("(" + Serves() + ") &\nexit 0\n"));
  ASSERT_EQ(keeper->WaitForHello(milliseconds(20'000)).state, ServerState::kServing);
  keeper->Stop(milliseconds(20'000));
  EXPECT_TRUE(Eventually([] { return waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD; }));
}

// A process closes its files before it can be waited for.
TEST_F(ServerKeeperTest, LeavesNoZombiesOfProgramsThatTakeTimeToEnd) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // as if the trainer were process 1
  std::string hello = Hello();
  const std::string process = std::to_string(1 << 21);
  hello.replace(hello.find(process), process.size(), "'$$'");
  WriteFile(InFolder("server"), "echo '" + hello + "' >&3\nexec 3>&-\nsleep 0.1\n");
  for (const std::string& script :
       {"sh " + InFolder("server") + " &\n", "sh " + InFolder("server") + " &\nsleep 0.05\n",
        std::string("exec 3>&-\nsleep 0.1\n")}) {
    WriteFile(InFolder("lives"), "");
    const auto keeper = Start(Program("echo x >> " + InFolder("lives") + "\n" + script));
    EXPECT_TRUE(Eventually([&] { return ReadFile(InFolder("lives")).size() >= 12; }));
    keeper->Stop(milliseconds(20'000));
    int zombies = 0;
    EXPECT_TRUE(Eventually([&] {
      pid_t ended = 0;
      while ((ended = waitpid(-1, nullptr, WNOHANG)) > 0) ++zombies;
      return ended == -1 && errno == ECHILD;
    }));
    EXPECT_LE(zombies, 2) << "those of the last start";
  }
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(ServerProgram, ThatIsMissingIsNamed) {
  const auto found = FindServerProgram("/nowhere/ptqwatch");
  EXPECT_TRUE(absl::IsNotFound(found.status())) << found.status();
  EXPECT_THAT(std::string(found.status().message()),
              StartsWith("ServeOptions.program = '/nowhere/ptqwatch'"));
}

TEST(ServerProgram, ThatOthersMayWriteIsRefused) {
  const TempDir dir;
  const std::string path = dir.path() + "/ptqwatch";
  WriteFile(path, "#!/bin/sh\n");
  chmod(path.c_str(), 0644);
  EXPECT_THAT(std::string(FindServerProgram(path).status().message()),
              HasSubstr("is not a program"));
  chmod(path.c_str(), 0775);
  EXPECT_THAT(std::string(FindServerProgram(path).status().message()), HasSubstr("chmod go-w"));
  chmod(path.c_str(), 0755);
  EXPECT_EQ(*FindServerProgram(path), path);
}

TEST(ServerProgram, IsTakenFromTheEnvironmentBeforeThePath) {
  const TempDir dir;
  const TempDir other;
  for (const TempDir* folder : {&dir, &other}) {
    WriteFile(folder->File("ptqwatch"), "#!/bin/sh\n");
    chmod((folder->path() + "/ptqwatch").c_str(), 0755);
  }
  const std::string before = getenv("PATH");
  setenv("PATH", ("relative:" + dir.path() + ":" + before).c_str(), 1);
  setenv("PTQWATCH_PROGRAM", (other.path() + "/ptqwatch").c_str(), 1);
  EXPECT_EQ(*FindServerProgram(""), other.path() + "/ptqwatch");
  setenv("PTQWATCH_PROGRAM", "/nowhere", 1);
  EXPECT_THAT(std::string(FindServerProgram("").status().message()),
              StartsWith("PTQWATCH_PROGRAM = '/nowhere'"));
  unsetenv("PTQWATCH_PROGRAM");
  setenv("PATH", before.c_str(), 1);
}

TEST(ServerProgram, IsStartedByTheFirstProcessOfAJobOnAMachine) {
  unsetenv("LOCAL_RANK");
  EXPECT_EQ(WhyAnotherServes(0), "");
  EXPECT_EQ(WhyAnotherServes(3), "its rank is 3");
  setenv("SLURM_LOCALID", "3", 1);
  EXPECT_EQ(WhyAnotherServes(3), "SLURM_LOCALID is 3");
  setenv("LOCAL_RANK", "0", 1);
  EXPECT_EQ(WhyAnotherServes(8), "");
  unsetenv("LOCAL_RANK");
  unsetenv("SLURM_LOCALID");
}

TEST(ServerOptions, AreNamedWithTheirValues) {
  const auto message = [](const ServeOptions& options) {
    return std::string(Validate(options).message());
  };
  EXPECT_EQ(message({}), "");
  EXPECT_THAT(message({.http = "nonsense"}), HasSubstr("ServeOptions.http"));
  EXPECT_THAT(message({.http = "nonsense"}), HasSubstr("nonsense"));
  EXPECT_THAT(message({.grpc = "0.0.0.0:1"}), HasSubstr("'0.0.0.0:1' is not a loopback address"));
  EXPECT_EQ(message({.grpc = "0.0.0.0:1", .allow_remote = true}), "");
  EXPECT_THAT(message({.http = "", .grpc = ""}), HasSubstr("nothing is left to serve"));
  EXPECT_THAT(message({.http = "", .targets_file = "t"}),
              HasSubstr("ServeOptions.targets_file = 't' is for ServeOptions.http"));
  EXPECT_THAT(message({.max_memory = 1}), HasSubstr("ServeOptions.max_memory = 1"));
  EXPECT_THAT(message({.linger = std::chrono::seconds(-1)}), HasSubstr("ServeOptions.linger = -1"));
  EXPECT_THAT(message({.environment = {{"A=B", ""}}}), HasSubstr("'A=B'"));
}

TEST(ServerArguments, SayAllThatTheOptionsSay) {
  const ServeOptions options{.http = "127.0.0.1:1",
                             .grpc = "",
                             .allow_remote = true,
                             .allow_control = true,
                             .allowed_hosts = {"a", "b"},
                             .security = {.certificate_file = "c", .token_file = "t"},
                             .max_layers = 3,
                             .targets_file = "t.json",
                             .linger = std::chrono::seconds(7),
                             .max_memory = 99};
  const auto arguments =
      ServerArguments(options, {.run_dir = "-runs/1", .remove = true, .of_rank = true}, 42);
  for (const char* word :
       {"--http=127.0.0.1:1", "--grpc=off", "--allow-remote", "--allow-control", "--allow-host=a",
        "--allow-host=b", "--tls-cert=c", "--token-file=t", "--max-layers=3", "--linger=7",
        "--max-memory=99", "--beside=42", "--remove", "--of-rank", "--targets=t.json"}) {
    EXPECT_THAT(arguments, Contains(word));
  }
  // A directory that looks like a flag must not be taken for one.
  EXPECT_EQ(arguments[arguments.size() - 2], "--");
  EXPECT_EQ(arguments.back(), "-runs/1");
}

TEST(ServedDirectory, IsItsOwnersAlone) {
  const TempDir parent;
  setenv("XDG_RUNTIME_DIR", parent.path().c_str(), 1);
  const auto made = MakeServedDirectory();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(*made, StartsWith(parent.path()));
  struct stat info {};
  ASSERT_EQ(stat(made->c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  unsetenv("XDG_RUNTIME_DIR");
}

}  // namespace
}  // namespace ptqwatch::internal
