#include "terminal.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "captured_terminal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace terminal_test {

using testing::CapturedTerminal;
using ::testing::HasSubstr;

const std::string kClean(kCleanTerminal);

class IgnoringSigpipe : public ::testing::Test {
 protected:
  IgnoringSigpipe() : before_(signal(SIGPIPE, SIG_IGN)) {}
  ~IgnoringSigpipe() override { signal(SIGPIPE, before_); }

 private:
  sighandler_t before_;
};
using TerminalTest = IgnoringSigpipe;

TEST_F(TerminalTest, HasNoStatusLineWithoutATerminal) {
  CapturedTerminal captured(/*is_terminal=*/false);
  captured.get()->Status("step 1");
  captured.get()->Line("row");
  captured.get()->Notice("lost");
  EXPECT_EQ(captured.out(), "row\n");
  EXPECT_EQ(captured.error(), "ptqwatch: lost\n");
}

TEST_F(TerminalTest, KeepsTheStatusLineBelowTheRows) {
  CapturedTerminal captured(/*is_terminal=*/true);
  captured.get()->Status("step 1");
  captured.get()->Status("step 1");  // nothing to redraw
  captured.get()->Line("row");
  captured.get()->Status("step 2");
  captured.get()->Status("");
  EXPECT_EQ(captured.out(), "step 1" + kClean + "row\nstep 1" + kClean + "step 2" + kClean);
}

TEST_F(TerminalTest, TakesTheStatusLineOffForANotice) {
  CapturedTerminal captured(/*is_terminal=*/true);
  captured.get()->Status("step 1");
  captured.get()->Notice("lost");
  EXPECT_EQ(captured.out(), "step 1" + kClean + "step 1");
  EXPECT_EQ(captured.error(), "ptqwatch: lost\n");
}

TEST_F(TerminalTest, CutsTheStatusLineToLessThanTheWidth) {
  CapturedTerminal captured(/*is_terminal=*/true);
  captured.get()->Status(std::string(200, 'x'));
  EXPECT_EQ(captured.out(), std::string(79, 'x'));  // a file has no size: 80 columns
}

TEST_F(TerminalTest, IsClosedWhenTheReaderGoesAway) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  {
    Terminal terminal(ends[1], STDERR_FILENO, false, {});
    EXPECT_FALSE(terminal.closed());
    close(ends[0]);
    EXPECT_TRUE(terminal.closed());  // before anything is written
    terminal.Line("row");
    EXPECT_TRUE(terminal.closed());
    EXPECT_TRUE(terminal.error().ok());
  }
  close(ends[1]);
}

TEST_F(TerminalTest, ReportsAFullDisk) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  {
    Terminal terminal(full, STDERR_FILENO, false, {});
    terminal.Line("row");
    EXPECT_TRUE(terminal.closed());
    EXPECT_THAT(terminal.error().ToString(), HasSubstr("No space left"));
  }
  close(full);
}

TEST_F(TerminalTest, WaitsForAReaderOfANonBlockingPipe) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
  const std::string line(200'000, 'x');  // more than a pipe holds
  const pid_t reader = fork();
  if (reader == 0) {
    close(ends[1]);
    char buffer[4096];
    size_t total = 0;
    for (ssize_t got; (got = read(ends[0], buffer, sizeof(buffer))) > 0;) {
      total += static_cast<size_t>(got);
    }
    _exit(total == line.size() + 1 ? 0 : 1);
  }
  {
    Terminal terminal(ends[1], STDERR_FILENO, false, {});
    terminal.Line(line);
    EXPECT_FALSE(terminal.closed());
  }
  close(ends[1]);
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(reader, &status, 0), reader);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace terminal_test
}  // namespace ptqwatch::internal
