#include "gnuplot.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

struct Close {
  void operator()(FILE* file) const { fclose(file); }
};
using File = std::unique_ptr<FILE, Close>;  // without a name, removed when it is closed

absl::StatusOr<std::string> Content(FILE* file) {
  std::string content;
  char buffer[65536];
  if (fseek(file, 0, SEEK_SET) != 0) return absl::ErrnoToStatus(errno, "a temporary file");
  while (const size_t got = fread(buffer, 1, sizeof(buffer), file)) content.append(buffer, got);
  return content;
}

// Of gnuplot's report, which also shows the line and where in it.
std::string Reason(const std::string& messages) {
  const size_t line = messages.find("line ");
  const std::string_view reason =
      std::string_view(messages).substr(line == std::string::npos ? 0 : line);
  return Printable(reason.substr(0, reason.find('\n')));
}

}  // namespace

absl::StatusOr<std::string> RunGnuplot(const std::string& script) {
  const File input(tmpfile()), output(tmpfile()), messages(tmpfile());
  if (input == nullptr || output == nullptr || messages == nullptr) {
    return absl::ErrnoToStatus(errno, "cannot make a temporary file");
  }
  if (fwrite(script.data(), 1, script.size(), input.get()) != script.size() ||
      fflush(input.get()) != 0 || fseek(input.get(), 0, SEEK_SET) != 0) {
    return absl::ErrnoToStatus(errno, "cannot write a temporary file");
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, fileno(input.get()), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, fileno(output.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, fileno(messages.get()), STDERR_FILENO);
  char name[] = "gnuplot";
  char* arguments[] = {name, nullptr};
  pid_t child = 0;
  const int failed = posix_spawnp(&child, name, &files, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) {
    return absl::NotFoundError(
        "the program gnuplot, which draws, is not on the PATH: on Debian, apt install gnuplot-nox");
  }
  int ended = 0;
  while (waitpid(child, &ended, 0) < 0 && errno == EINTR) {
  }
  absl::StatusOr<std::string> image = Content(output.get());
  if (ended != 0 || !image.ok() || image->empty()) {
    const absl::StatusOr<std::string> why = Content(messages.get());
    return absl::InternalError(
        StrCat("gnuplot could not draw: ", why.ok() ? Reason(*why) : "no reason given"));
  }
  return image;
}

}  // namespace ptqwatch::internal
