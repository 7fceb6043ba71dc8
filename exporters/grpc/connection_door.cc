#include "connection_door.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::steady_clock;

// While there are connections. In so much time a sender on the same machine gets some megabytes
// through.
constexpr std::chrono::milliseconds kLookInterval{20};

bool SameSocket(int one, int other) {
  struct stat a {};
  struct stat b {};
  return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

// False where the client has reset it already, at which gRPC would print an error.
bool IsConnected(int socket) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  return getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

int64_t BytesReceived(int socket) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return static_cast<int64_t>(info.tcpi_bytes_received);
}

// Resets it and drops what was received. shutdown() would leave a sender waiting as long as gRPC
// reads nothing, which is what it does when its memory is used up.
void Abort(int socket) {
  const sockaddr none{.sa_family = AF_UNSPEC, .sa_data = {}};
  connect(socket, &none, sizeof(none));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionDoor>> ConnectionDoor::Open(
    std::unique_ptr<Acceptor> acceptor, size_t max_connections) {
  std::unique_ptr<ConnectionDoor> door(new ConnectionDoor(std::move(acceptor), max_connections));
  PTQWATCH_ASSIGN_OR_RETURN(door->watcher_,
                            StartThread("ptqw-grpc-door", [door = door.get()] { door->Watch(); }));
  return door;
}

absl::Status ConnectionDoor::Listen(BoundSocket socket, const std::string& address) {
  PTQWATCH_ASSIGN_OR_RETURN(listener_,
                            Listener::Start(std::move(socket), "ptqw-grpc-door", address,
                                            [this](int descriptor) { Take(descriptor); }));
  return absl::OkStatus();
}

void ConnectionDoor::Close() {
  if (!process_.here()) return;
  if (listener_ != nullptr) listener_->Stop();
  {
    MutexLock lock(mutex_);
    closing_ = true;
    changed_.SignalAll();
  }
  watcher_.Join();
  MutexLock lock(mutex_);
  for (const Connection& connection : connections_) close(connection.ours);
  connections_.clear();
}

void ConnectionDoor::Take(int descriptor) {
  {
    MutexLock lock(mutex_);
    const bool welcome =
        !closing_ && connections_.size() < max_connections_ && IsConnected(descriptor);
    const int ours = welcome ? fcntl(descriptor, F_DUPFD_CLOEXEC, 0) : -1;
    if (ours < 0) {
      close(descriptor);
      return;
    }
    connections_.push_back({descriptor, ours, kBurstBytes, 0});
    changed_.SignalAll();
  }
  // As gRPC sets it on connections of its own.
  const int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  Acceptor::NewConnectionParameters connection;
  connection.fd = descriptor;
  acceptor_->HandleNewConnection(&connection);
}

void ConnectionDoor::Watch() {
  MutexLock lock(mutex_);
  auto last = steady_clock::now();
  while (!closing_) {
    if (connections_.empty()) {
      changed_.Wait(mutex_);
      last = steady_clock::now();
      continue;
    }
    changed_.WaitUntil(mutex_, last + kLookInterval);
    const auto now = steady_clock::now();
    if (now - last < kLookInterval) continue;
    LookAtAll(std::chrono::duration<double>(now - last).count());
    last = now;
  }
}

void ConnectionDoor::LookAtAll(double seconds) {
  std::erase_if(connections_, [seconds](Connection& connection) {
    if (!SameSocket(connection.grpcs, connection.ours)) {
      close(connection.ours);
      return true;
    }
    const int64_t received = BytesReceived(connection.ours);
    connection.allowance =
        std::min(connection.allowance + seconds * static_cast<double>(kBytesASecond),
                 static_cast<double>(kBurstBytes)) -
        static_cast<double>(received - std::exchange(connection.received, received));
    if (connection.allowance < 0) Abort(connection.ours);  // gRPC then closes its own
    return false;
  });
}

}  // namespace ptqwatch::internal
