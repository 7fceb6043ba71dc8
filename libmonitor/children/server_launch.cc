#include "children/server_launch.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/strings.h"
#include "children/spawn.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kMaxHelloBytes = 4096;

absl::Status SpawnError(int error, const std::string& what) {
  return absl::UnavailableError(std::string(Message(absl::ErrnoToStatus(error, what))));
}

}  // namespace

absl::StatusOr<LaunchedServer> LaunchedServer::Launch(const std::string& program,
                                                      const std::vector<std::string>& arguments,
                                                      const std::vector<std::string>& environment,
                                                      const std::string& log_file) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return SpawnError(errno, "no pipe to the server");
  const auto [read_end, write_end] = ends;
  // By syscall, because pidfd_open needs glibc 2.36.
  const int trainer = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  fcntl(read_end, F_SETFL, O_NONBLOCK);
  SpawnOptions options = {.program = program,
                          .arguments = arguments,
                          .environment = environment,
                          .files = {write_end},
                          .log_file = log_file};
  static_assert(kHelloDescriptor == 3 && kTrainerDescriptor == 4);
  if (trainer >= 0) options.files.push_back(trainer);
  pid_t launcher = 0;
  const int error = Spawn(options, &launcher);
  close(write_end);
  if (trainer >= 0) close(trainer);
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
  // The server is the launcher's child, and then one of this process if the trainer is process 1 or
  // a subreaper.
  if (launcher_ == 0 && ended_ && server_ > 0 && waitpid(server_, nullptr, WNOHANG) != 0) {
    server_ = 0;
  }
  return launcher_ == 0 && server_ == 0;
}

}  // namespace ptqwatch::internal
