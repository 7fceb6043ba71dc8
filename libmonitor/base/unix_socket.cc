#include "base/unix_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kSocketBacklog = 16;

absl::Status SocketError(const char* what, const std::string& path) {
  return absl::ErrnoToStatus(errno, StrCat("cannot ", what, " '", path, "'"));
}

// Calls bind or connect with the address of `name` in `folder`. An address holds 107 characters, so
// the folder is referred to by its descriptor.
template <typename Call>
absl::Status WithAddress(const std::string& folder, const std::string& name, const char* what,
                         Call call) {
  const std::string path = StrCat(folder, "/", name);
  const int directory = open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return SocketError("open the folder of", path);
  const absl::Cleanup close_directory = [directory] { close(directory); };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string short_path = StrCat("/proc/self/fd/", directory, "/", name);
  if (short_path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(StrCat("the name of '", path, "' is too long"));
  }
  std::copy(short_path.begin(), short_path.end(), address.sun_path);
  if (call(reinterpret_cast<const sockaddr*>(&address), socklen_t{sizeof(address)}) != 0) {
    return SocketError(what, path);
  }
  return absl::OkStatus();
}

// False once `until` has passed or `cancel` is readable.
bool WaitFor(int descriptor, int16_t events, steady_clock::time_point until, int cancel) {
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd waits[] = {{.fd = descriptor, .events = events, .revents = 0},
                      {.fd = cancel, .events = POLLIN, .revents = 0}};
    if (poll(waits, 2, static_cast<int>(left.count())) > 0) return waits[1].revents == 0;
  }
}

bool TryAgain() { return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

UnixConnection::UnixConnection(UnixConnection&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

UnixConnection::~UnixConnection() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<UnixConnection> UnixConnection::Open(const std::string& folder,
                                                    const std::string& name) {
  // Non-blocking, so that a full backlog fails at once with EAGAIN.
  UnixConnection connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connection.descriptor_ < 0) return SocketError("make a socket for", folder);
  PTQWATCH_RETURN_IF_ERROR(
      WithAddress(folder, name, "connect to", [&](const sockaddr* address, socklen_t size) {
        return connect(connection.descriptor_, address, size);
      }));
  return connection;
}

bool UnixConnection::IsOpen() const {
  pollfd look{.fd = descriptor_, .events = 0, .revents = 0};
  return poll(&look, 1, 0) >= 0 && (look.revents & (POLLHUP | POLLERR)) == 0;
}

std::optional<uid_t> UnixConnection::PeerUser() const {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(descriptor_, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer.uid;
}

bool UnixConnection::IsOfThisUser() const {
  const std::optional<uid_t> user = PeerUser();
  return user == geteuid() || user == uid_t{0};
}

absl::Status UnixConnection::SendLine(std::string_view line, milliseconds timeout,
                                      int cancel) const {
  const auto until = steady_clock::now() + timeout;
  const std::string bytes = StrCat(line, "\n");
  size_t sent = 0;
  while (sent < bytes.size()) {
    if (!WaitFor(descriptor_, POLLOUT, until, cancel)) {
      return absl::DeadlineExceededError("the other end does not read");
    }
    const ssize_t got = send(descriptor_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (got < 0 && !TryAgain()) return absl::ErrnoToStatus(errno, "cannot send");
    sent += static_cast<size_t>(std::max<ssize_t>(got, 0));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> UnixConnection::ReceiveLine(size_t max_bytes, milliseconds timeout,
                                                        int cancel) const {
  const auto until = steady_clock::now() + timeout;
  std::string line;
  while (true) {
    if (!WaitFor(descriptor_, POLLIN, until, cancel)) {
      return absl::DeadlineExceededError("no complete line arrived in time");
    }
    char buffer[512];
    const ssize_t got = recv(descriptor_, buffer, sizeof(buffer), 0);
    if (got == 0) return absl::UnavailableError("the connection was closed");
    if (got < 0 && TryAgain()) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "cannot receive");
    line.append(buffer, static_cast<size_t>(got));
    if (const size_t end = line.find('\n'); end <= max_bytes) return line.substr(0, end);
    if (line.size() > max_bytes) return absl::ResourceExhaustedError("the line is too long");
  }
}

absl::StatusOr<UnixListener> UnixListener::Open(const std::string& folder,
                                                const std::string& name) {
  const std::string path = StrCat(folder, "/", name);
  UnixListener listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "");
  if (listener.descriptor_ < 0) return SocketError("make the socket", path);
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) unlink(path.c_str());
  // Before bind, which gives the file the mode of the socket.
  if (fchmod(listener.descriptor_, S_IRUSR | S_IWUSR) != 0) return SocketError("protect", path);
  PTQWATCH_RETURN_IF_ERROR(
      WithAddress(folder, name, "make the socket", [&](const sockaddr* address, socklen_t size) {
        return bind(listener.descriptor_, address, size);
      }));
  listener.path_ = path;
  if (listen(listener.descriptor_, kSocketBacklog) != 0) return SocketError("listen at", path);
  return listener;
}

UnixListener::UnixListener(UnixListener&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {
  other.path_.clear();
}

UnixListener::~UnixListener() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!path_.empty()) unlink(path_.c_str());
}

absl::StatusOr<UnixConnection> UnixListener::Accept() const {
  const int descriptor = accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (descriptor < 0) return absl::UnavailableError("no connection");
  return UnixConnection(descriptor);
}

}  // namespace ptqwatch::internal
