#ifndef PTQWATCH_TESTS_UNIT_TOOLS_PROGRAM_H_
#define PTQWATCH_TESTS_UNIT_TOOLS_PROGRAM_H_

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ptqwatch::testing {

/// The real program, as a process. Its standard output is a pipe or a terminal of 80 or any other
/// number of columns, standard error a pipe.
class Program {
 public:
  /// `columns`: of the terminal; 0 for a pipe.
  Program(std::vector<std::string> arguments, std::vector<std::string> environment = {},
          unsigned short columns = 0, const std::string& path = PTQWATCH_PROGRAM) {
    int out[2], error[2];
    if (columns > 0) {
      winsize size{};
      size.ws_col = columns;
      size.ws_row = 24;
      EXPECT_EQ(openpty(&out[0], &out[1], nullptr, nullptr, &size), 0);
      fcntl(out[0], F_SETFD, FD_CLOEXEC);
    } else {
      EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    }
    EXPECT_EQ(pipe2(error, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, error[1], STDERR_FILENO);
    arguments.insert(arguments.begin(), path);
    std::vector<char*> argv, envp;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    for (std::string& variable : environment) envp.push_back(variable.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, path.c_str(), &actions, nullptr, argv.data(), envp.data()), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(error[1]);
    out_ = out[0];
    error_ = error[0];
  }
  ~Program() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    CloseOut();
    close(error_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Standard output up to and with `text`, or all of it if `text` does not come within 10 s.
  std::string ReadUntil(const std::string& text) {
    std::string seen;
    while (seen.find(text) == std::string::npos && ReadSome(out_, &seen)) {
    }
    return seen;
  }
  std::string ReadOut() { return ReadAll(out_); }
  std::string ReadError() { return ReadAll(error_); }
  void CloseOut() {
    if (out_ >= 0) close(out_);
    out_ = -1;
  }
  void Signal(int number) { kill(pid_, number); }
  /// The exit code; 128 and the number for a process that a signal ended.
  int Wait() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  static bool ReadSome(int fd, std::string* seen) {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, 10'000) != 1) return false;
    char buffer[4096];
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got <= 0) return false;  // a terminal whose other end is closed gives EIO
    seen->append(buffer, static_cast<size_t>(got));
    return true;
  }
  static std::string ReadAll(int fd) {
    std::string all;
    while (ReadSome(fd, &all)) {
    }
    return all;
  }

  pid_t pid_ = -1;
  int out_ = -1;
  int error_ = -1;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_UNIT_TOOLS_PROGRAM_H_
