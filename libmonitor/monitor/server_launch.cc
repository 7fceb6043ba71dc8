#include "monitor/server_launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr off_t kMaxLogBytes = off_t{1} << 20;
constexpr size_t kMaxHelloBytes = 4096;
// Above the server's own descriptors, so that moving one does not overwrite another.
constexpr int kFirstFree = 10;

// Duplicates a descriptor above those, closed on exec. -1 if `descriptor` is -1.
int MoveUp(int descriptor) {
  if (descriptor < 0) return -1;
  const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, kFirstFree);
  close(descriptor);
  return moved;
}

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

absl::Status SpawnError(int error, const std::string& what) {
  return absl::UnavailableError(std::string(Message(absl::ErrnoToStatus(error, what))));
}

// Returns the error number of posix_spawn.
int Spawn(const std::string& program, const std::vector<std::string>& arguments,
          const std::vector<std::string>& environment, const std::string& log_file, int hello,
          int trainer, pid_t* launcher) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const absl::Cleanup destroy = [&] {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  };
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log_file.c_str(), LogFlags(log_file),
                                   S_IRUSR | S_IWUSR);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&files, hello, kHelloDescriptor);
  if (trainer >= 0) posix_spawn_file_actions_adddup2(&files, trainer, kTrainerDescriptor);
  posix_spawn_file_actions_addclosefrom_np(
      &files, trainer >= 0 ? kTrainerDescriptor + 1 : kHelloDescriptor + 1);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));

  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return posix_spawn(launcher, program.c_str(), &files, &attributes, Pointers(words).data(),
                     Pointers(environment).data());
}

}  // namespace

absl::StatusOr<LaunchedServer> LaunchedServer::Launch(const std::string& program,
                                                      const std::vector<std::string>& arguments,
                                                      const std::vector<std::string>& environment,
                                                      const std::string& log_file) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return SpawnError(errno, "no pipe to the server");
  const int read_end = MoveUp(ends[0]);
  const int write_end = MoveUp(ends[1]);
  // By syscall, because pidfd_open needs glibc 2.36.
  const int trainer = MoveUp(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  const absl::Cleanup close_ours = [&] {
    if (write_end >= 0) close(write_end);
    if (trainer >= 0) close(trainer);
  };
  if (read_end < 0 || write_end < 0) {
    if (read_end >= 0) close(read_end);
    return SpawnError(EMFILE, "no pipe to the server");
  }
  fcntl(read_end, F_SETFL, O_NONBLOCK);
  pid_t launcher = 0;
  const int error = Spawn(program, arguments, environment, log_file, write_end, trainer, &launcher);
  if (error != 0) {
    close(read_end);
    return SpawnError(error, StrCat("cannot start '", program, "'"));
  }
  return LaunchedServer(read_end, launcher);
}

LaunchedServer::LaunchedServer(LaunchedServer&& other) noexcept
    : pipe_(std::exchange(other.pipe_, -1)),
      launcher_(std::exchange(other.launcher_, 0)),
      server_(std::exchange(other.server_, 0)),
      line_(std::move(other.line_)),
      hello_(std::move(other.hello_)),
      ended_(other.ended_) {}

LaunchedServer::~LaunchedServer() {
  WaitForChildren();
  if (pipe_ >= 0) close(pipe_);
}

void LaunchedServer::Read() {
  std::array<char, 1024> part;
  ssize_t read_bytes = 0;
  while ((read_bytes = read(pipe_, part.data(), part.size())) > 0) {
    if (!hello_ && line_.size() < kMaxHelloBytes) {
      line_.append(part.data(), static_cast<size_t>(read_bytes));
    }
  }
  ended_ = read_bytes == 0 || (errno != EAGAIN && errno != EINTR);
  if (const size_t end = line_.find('\n'); !hello_ && end != std::string::npos) {
    hello_ = HelloFromJson(std::string_view(line_).substr(0, end));
    if (hello_->ok()) server_ = (*hello_)->process;
  }
  WaitForChildren();
}

bool LaunchedServer::WaitForChildren() {
  // ECHILD counts: the trainer may have waited for the launcher.
  if (launcher_ > 0 && waitpid(launcher_, nullptr, WNOHANG) != 0) launcher_ = 0;
  // The server is a child of this process if the trainer is process 1 or a subreaper.
  if (ended_ && server_ > 0 && waitpid(server_, nullptr, WNOHANG) != 0) server_ = 0;
  return launcher_ == 0 && server_ == 0;
}

}  // namespace ptqwatch::internal
