#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "base/strings.h"
#include "command_support.h"
#include "commands.h"

namespace ptqwatch::internal {
namespace {

constexpr char kProgram[] = "ptqwatch-trajectory";

}  // namespace

int RunTrajectory(const TrajectoryFlags& flags, Terminal* terminal) {
  std::error_code error;
  const std::string beside =
      (std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / kProgram).string();
  std::vector<std::string> words{kProgram};
  words.insert(words.end(), flags.arguments.begin(), flags.arguments.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  const auto ignored = signal(SIGPIPE, SIG_DFL);  // main ignores it, and programs inherit that
  if (!error) execv(beside.c_str(), arguments.data());
  if (error || errno == ENOENT) execvp(kProgram, arguments.data());
  const int failure = errno;
  signal(SIGPIPE, ignored);
  if (failure != ENOENT) {
    return Fail(absl::ErrnoToStatus(failure, StrCat("cannot start ", kProgram)), terminal);
  }
  return Fail(absl::NotFoundError(StrCat("this command needs the program ", kProgram,
                                         ", which is neither ", beside,
                                         " nor on PATH; it is in the package ptqwatch-trajectory, "
                                         "or built with LibTorch (cmake --build --preset release "
                                         "--target trajectory)")),
              terminal);
}

}  // namespace ptqwatch::internal
