#include "inbound_limit.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/status_macros.h"

namespace ptqwatch::internal {
namespace {

constexpr std::chrono::milliseconds kRound{100};
constexpr double kBytesARound = (256 << 10) / 10.0;
constexpr double kMaxAhead = 2 << 20;

int LocalPort(int descriptor) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return 0;
}

// Nothing that the client still sends is acknowledged, so it waits for its timeout instead of
// connecting again at once.
void End(int descriptor) {
  sock_filter drop_all[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog filter{.len = 1, .filter = drop_all};
  setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter));
  shutdown(descriptor, SHUT_RDWR);
}

}  // namespace

absl::StatusOr<std::unique_ptr<InboundLimit>> InboundLimit::Start(int port) {
  std::unique_ptr<InboundLimit> limit(new InboundLimit(port));
  PTQWATCH_ASSIGN_OR_RETURN(limit->thread_,
                            StartThread("ptqwatch-inbound", [raw = limit.get()] { raw->Run(); }));
  return limit;
}

InboundLimit::~InboundLimit() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.Signal();
  if (thread_.joinable()) thread_.Join();
}

void InboundLimit::Run() {
  MutexLock lock(mutex_);
  while (!ending_) {
    const auto next = std::chrono::steady_clock::now() + kRound;
    lock.Unlock();
    Check();
    lock.Lock();
    while (!ending_ && changed_.WaitUntil(mutex_, next)) {
    }
  }
}

void InboundLimit::Check() {
  for (auto& [descriptor, connection] : connections_) connection.seen = false;
  DIR* const open = opendir("/proc/self/fd");
  if (open == nullptr) return;
  while (const dirent* const entry = readdir(open)) {
    const std::string_view name = entry->d_name;
    int descriptor = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), descriptor).ec == std::errc()) {
      Check(descriptor);
    }
  }
  closedir(open);
  std::erase_if(connections_, [](const auto& one) { return !one.second.seen; });
}

void InboundLimit::Check(int descriptor) {
  if (LocalPort(descriptor) != port_) return;
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return;
  Connection& connection = connections_[descriptor];
  connection.seen = true;
  const auto received = static_cast<double>(info.tcpi_bytes_received);
  if (received < connection.received) connection = {.seen = true};  // another connection
  connection.ahead =
      std::max(0.0, connection.ahead + (received - connection.received) - kBytesARound);
  connection.received = received;
  if (connection.ahead > kMaxAhead) End(descriptor);
}

}  // namespace ptqwatch::internal
