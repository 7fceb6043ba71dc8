#include "children/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"

namespace ptqwatch::internal {
namespace {

constexpr off_t kMaxLogBytes = off_t{1} << 20;
constexpr int kFirstFile = 3;

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Truncates a large file: servers that cannot start would fill a disk within weeks.
int LogFlags(const std::string& path) {
  struct stat info {};
  const bool full = stat(path.c_str(), &info) == 0 && info.st_size > kMaxLogBytes;
  return O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | (full ? O_TRUNC : 0);
}

}  // namespace

int Spawn(const SpawnOptions& options, pid_t* process) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  std::vector<int> moved;
  const absl::Cleanup destroy = [&] {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    for (const int file : moved) close(file);
  };
  const int after_files = kFirstFile + static_cast<int>(options.files.size());
  for (const int file : options.files) {
    // Above the descriptors of the process, so that moving one does not overwrite another.
    const int high = fcntl(file, F_DUPFD_CLOEXEC, after_files);
    if (high < 0) return errno;
    posix_spawn_file_actions_adddup2(&files, high, kFirstFile + static_cast<int>(moved.size()));
    moved.push_back(high);
  }
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (!options.log_file.empty()) {
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, options.log_file.c_str(),
                                     LogFlags(options.log_file), S_IRUSR | S_IWUSR);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  }
  posix_spawn_file_actions_addclosefrom_np(&files, after_files);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              (options.new_session ? POSIX_SPAWN_SETSID : 0)));
  std::vector<std::string> words = {options.program};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  return posix_spawn(process, options.program.c_str(), &files, &attributes, Pointers(words).data(),
                     Pointers(options.environment).data());
}

}  // namespace ptqwatch::internal
