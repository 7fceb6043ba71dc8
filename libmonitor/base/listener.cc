#include "base/listener.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <system_error>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr int kBacklog = 64;  // not accepted yet
constexpr auto kRetryInterval = std::chrono::milliseconds(100);

}  // namespace

bool IsOfTheLastDescriptors(int descriptor, int reserved) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  return static_cast<rlim_t>(descriptor) + static_cast<rlim_t>(reserved) >= limit.rlim_cur;
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(BoundSocket socket,
                                                          std::string thread_name,
                                                          const std::string& address,
                                                          std::function<void(int)> take) {
  if (listen(socket.descriptor(), kBacklog) != 0) {
    return absl::UnavailableError(
        StrCat(address, ": cannot listen: ", std::generic_category().message(errno)));
  }
  std::unique_ptr<Listener> listener(new Listener(std::move(socket), std::move(take)));
  PTQWATCH_ASSIGN_OR_RETURN(
      listener->thread_,
      StartThread(std::move(thread_name), [accepts = listener.get()] { accepts->Accept(); }));
  return listener;
}

void Listener::Accept() {
  while (true) {
    const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    const int error = errno;
    {
      MutexLock lock(mutex_);
      if (stopping_) {
        if (connection >= 0) close(connection);
        return;
      }
      if (connection < 0 && error != EINTR && error != ECONNABORTED) {
        // Most likely out of descriptors: the connection stays in the backlog, and trying again at
        // once would only burn a core.
        const auto retry = std::chrono::steady_clock::now() + kRetryInterval;
        while (!stopping_ && changed_.WaitUntil(mutex_, retry)) {
        }
      }
    }
    if (connection < 0) continue;
    if (IsOfTheLastDescriptors(connection, kReservedDescriptors)) {
      close(connection);
    } else {
      take_(connection);
    }
  }
}

void Listener::Stop() {
  if (!process_.here()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    if (socket_ >= 0) shutdown(socket_, SHUT_RDWR);  // ends accept(), which close() would not
    changed_.SignalAll();
  }
  thread_.Join();
  if (socket_ >= 0) close(std::exchange(socket_, -1));
}

}  // namespace ptqwatch::internal
