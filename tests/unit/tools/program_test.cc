#include "program.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/temp_dir.h"
#include "terminal.h"
#include "unit/proto/client/fake_server.h"
#include "unit/proto/client/raw_server.h"

namespace ptqwatch {
namespace program_test {

using internal::kCleanTerminal;
using ::testing::AllOf;
using ::testing::EndsWith;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Program;
using testing::ReportNumber;
using ::testing::StartsWith;

TEST(Program, EndsWithTwoAndOneLineAfterAMistake) {
  const std::vector<std::vector<std::string>> mistakes = {
      {},         {"wtach", ":1"},      {"--bogus"},
      {"watch"},  {"watch", ":0"},      {"watch", ":1", "--count", "x"},
      {"replay"}, {"replay", "a", "b"}, {"status", ":1", "--bogus"}};
  for (const auto& arguments : mistakes) {
    Program program(arguments);
    EXPECT_THAT(program.ReadOut(), IsEmpty());
    const std::string error = program.ReadError();
    EXPECT_THAT(error, AllOf(StartsWith("ptqwatch: "), EndsWith("\n")));
    EXPECT_EQ(error.find('\n'), error.size() - 1) << error;
    EXPECT_EQ(program.Wait(), 2);
  }
}

TEST(Program, PrintsHelpAndVersion) {
  Program version({"--version"});
  EXPECT_EQ(version.ReadOut(), "ptqwatch 0.1.0\n");
  EXPECT_EQ(version.Wait(), 0);
  Program help({"watch", "--help"});
  EXPECT_THAT(help.ReadOut(), HasSubstr("--since"));
  EXPECT_EQ(help.Wait(), 0);
}

TEST(Program, EndsWithOneAndOneLineIfThereIsNoServer) {
  std::string address;
  {
    const testing::RawServer gone("");
    address = gone.address().ToString();
  }
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"status", address},
                                                    {"snapshot", address},
                                                    {"watch", address, "--timeout", "0"}}) {
    Program program(arguments);
    const std::string error = program.ReadError();
    EXPECT_THAT(error, AllOf(HasSubstr(address), HasSubstr("connection refused")));
    EXPECT_EQ(error.find('\n'), error.size() - 1) << error;
    EXPECT_EQ(program.Wait(), 1);
  }
}

TEST(Program, ReplaysAJournal) {
  const testing::TempDir directory;
  const std::string journal = directory.File("journal.jsonl");
  testing::WriteFile(journal, ToJson(ReportNumber(1)) + "\n" + ToJson(ReportNumber(2)) + "\nx\n");
  for (const std::string& argument : {journal, directory.path()}) {
    Program table({"replay", argument});
    EXPECT_THAT(table.ReadOut(), EndsWith("\n2 reports, no alarm\n"));
    EXPECT_EQ(table.ReadError(), "ptqwatch: '" + argument + "': skipped 1 unreadable line\n");
    EXPECT_EQ(table.Wait(), 0);
  }
  Program missing({"replay", directory.File("none")});
  EXPECT_EQ(missing.ReadError(),
            "ptqwatch: cannot open '" + directory.File("none") + "': No such file or directory\n");
  EXPECT_EQ(missing.Wait(), 1);
  Program input({"replay", "-"});  // /dev/null
  EXPECT_EQ(input.ReadError(), "ptqwatch: 'standard input' is empty\n");
  EXPECT_EQ(input.Wait(), 1);
}

TEST(Program, PrintsNothingOfGrpcAboutAWebServer) {
  const testing::RawServer web(testing::kHttpAnswer);
  Program program({"status", web.address().ToString()});
  const std::string error = program.ReadError();
  EXPECT_THAT(error, HasSubstr("/metrics has another port"));
  EXPECT_EQ(error.find('\n'), error.size() - 1) << error;
  EXPECT_EQ(program.Wait(), 1);
}

TEST(Program, WatchesAsAsciiInTheCLocaleAndAsUtf8Elsewhere) {
  FakeServer server;
  server.PublishNumbers(1, 1);
  Program ascii({"watch", server.target(), "--count", "1"}, {"LC_ALL=C"});
  EXPECT_THAT(ascii.ReadOut(), AllOf(HasSubstr("11.89+-0.59%"), Not(HasSubstr("\x1b"))));
  EXPECT_EQ(ascii.Wait(), 0);
  Program utf8({"watch", server.target(), "--count", "1"}, {"LC_ALL=C.UTF-8"});
  EXPECT_THAT(utf8.ReadOut(), HasSubstr("11.89\u00b10.59%"));
  EXPECT_EQ(utf8.Wait(), 0);
}

TEST(Program, WritesALineAsSoonAsItsReportIsThere) {
  FakeServer server;
  server.PublishNumbers(1, 1);
  Program program({"watch", server.target(), "--json"});
  EXPECT_EQ(program.ReadUntil("\n"), ToJson(ReportNumber(1)) + "\n");
  server.PublishNumbers(2, 2);
  EXPECT_EQ(program.ReadUntil("\n"), ToJson(ReportNumber(2)) + "\n");
}

TEST(Program, EndsAtOnceWhenInterrupted) {
  FakeServer server;
  server.PublishNumbers(1, 1);
  Program interrupted({"watch", server.target()});
  interrupted.ReadUntil("decay\n");
  interrupted.Signal(SIGINT);
  EXPECT_EQ(interrupted.Wait(), 130);
  EXPECT_THAT(interrupted.ReadError(), IsEmpty());
  Program terminated({"watch", server.target()});
  terminated.ReadUntil("decay\n");
  terminated.Signal(SIGTERM);
  EXPECT_EQ(terminated.Wait(), 143);
}

TEST(Program, EndsQuietlyWhenTheReaderGoesAway) {
  FakeServer server;
  server.PublishNumbers(1, 1);
  Program program({"watch", server.target()});
  program.ReadUntil("decay\n");
  program.CloseOut();
  server.PublishNumbers(2, 2);
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_THAT(program.ReadError(), IsEmpty());
}

TEST(Program, LeavesAnInterruptedTerminalClean) {
  FakeServer server;
  server.SetStatus([](v1::GetStatusResponse& status) { status.set_step(1234); });
  server.PublishNumbers(1, 1);
  Program program({"watch", server.target()}, {"TERM=xterm", "LC_ALL=C.UTF-8"}, 80);
  const std::string screen = program.ReadUntil("step 1234");
  EXPECT_THAT(screen, AllOf(HasSubstr("\x1b[1mbranch     step"), HasSubstr("\x1b[31m decay")));
  program.Signal(SIGINT);
  EXPECT_THAT(program.ReadOut(), EndsWith(std::string(kCleanTerminal)));
  EXPECT_EQ(program.Wait(), 130);
}

TEST(Program, HasNoColoursIfTheyAreNotWanted) {
  FakeServer server;
  server.PublishNumbers(1, 1);
  for (const std::string variable : {"NO_COLOR=1", "TERM=dumb"}) {
    Program program({"watch", server.target(), "--count", "1"}, {variable}, 200);
    EXPECT_THAT(program.ReadOut(), AllOf(HasSubstr("  decay\r\n"), Not(HasSubstr("[31m"))));
    EXPECT_EQ(program.Wait(), 0);
  }
}

// A copy of the program, with no other program beside it.
TEST(Program, SaysWhatTrajectoryNeeds) {
  const testing::TempDir dir;
  const std::string alone = dir.File("ptqwatch");
  std::filesystem::copy_file(PTQWATCH_PROGRAM, alone);
  Program program({"trajectory", "--help"}, {"PATH=/nowhere"}, 0, alone);
  EXPECT_THAT(program.ReadOut(), IsEmpty());
  EXPECT_THAT(program.ReadError(), AllOf(HasSubstr("/ptqwatch-trajectory nor on PATH"),
                                         HasSubstr("--target trajectory")));
  EXPECT_EQ(program.Wait(), 1);
}

TEST(Program, BecomesTheProgramBesideItForATrajectory) {
  const testing::TempDir dir;
  const std::string alone = dir.File("ptqwatch");
  std::filesystem::copy_file(PTQWATCH_PROGRAM, alone);
  const std::string beside = dir.File("ptqwatch-trajectory");
  testing::WriteFile(beside, "#!/bin/sh\necho \"$@\"\nexit 7\n");
  std::filesystem::permissions(beside, std::filesystem::perms::owner_all);
  Program program({"trajectory", "a b", "--help"}, {"PATH=/bin"}, 0, alone);
  EXPECT_EQ(program.ReadOut(), "a b --help\n");
  EXPECT_EQ(program.Wait(), 7);
}

}  // namespace program_test
}  // namespace ptqwatch
