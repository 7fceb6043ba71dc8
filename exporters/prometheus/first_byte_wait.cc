#include "first_byte_wait.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr int kEvents = 16;

bool Watch(int epoll, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.fd = descriptor;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

void Wake(int descriptor) {
  const uint64_t one = 1;
  (void)!write(descriptor, &one, sizeof(one));
}

}  // namespace

absl::StatusOr<std::unique_ptr<FirstByteWait>> FirstByteWait::Start(
    std::chrono::milliseconds patience, std::function<void(int)> ready) {
  std::unique_ptr<FirstByteWait> wait(new FirstByteWait(patience, std::move(ready)));
  wait->epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wait->wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wait->epoll_ < 0 || wait->wake_ < 0 || !Watch(wait->epoll_, wait->wake_)) {
    return absl::ResourceExhaustedError(
        StrCat("no descriptor: ", std::generic_category().message(errno)));
  }
  PTQWATCH_ASSIGN_OR_RETURN(wait->thread_,
                            StartThread("ptqw-http", [runs = wait.get()] { runs->Run(); }));
  return wait;
}

FirstByteWait::~FirstByteWait() {
  Stop();
  if (epoll_ >= 0) close(epoll_);
  if (wake_ >= 0) close(wake_);
}

void FirstByteWait::Add(int connection) {
  MutexLock lock(mutex_);
  if (until_.size() >= kMostConnections) CloseOldest();
  if (stopping_ || !Watch(epoll_, connection)) {
    close(connection);
    return;
  }
  const bool first = until_.empty();
  until_[connection] = std::chrono::steady_clock::now() + patience_;
  if (first) Wake(wake_);  // until now it waited without end
}

void FirstByteWait::Stop() {
  if (!process_.here()) return;  // in a child of fork() there is no thread to end
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    if (thread_.joinable()) Wake(wake_);
  }
  if (thread_.joinable()) thread_.Join();
  MutexLock lock(mutex_);
  while (!until_.empty()) CloseOldest();
}

void FirstByteWait::Run() {
  std::array<epoll_event, kEvents> events;
  int milliseconds = -1;
  while (true) {
    const int count = epoll_wait(epoll_, events.data(), kEvents, milliseconds);
    for (int i = 0; i < count; ++i) {
      const int descriptor = events[static_cast<size_t>(i)].data.fd;
      if (descriptor == wake_) {
        uint64_t told = 0;
        (void)!read(wake_, &told, sizeof(told));
        continue;
      }
      MutexLock lock(mutex_);
      if (stopping_) return;
      if (!Forget(descriptor)) continue;
      lock.Unlock();
      ready_(descriptor);
    }
    MutexLock lock(mutex_);
    if (stopping_) return;
    CloseSilent(std::chrono::steady_clock::now());
    milliseconds = MillisecondsToWait();
  }
}

int FirstByteWait::MillisecondsToWait() const {
  if (until_.empty()) return -1;
  Time earliest = Time::max();
  for (const auto& [connection, until] : until_) earliest = std::min(earliest, until);
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(earliest - std::chrono::steady_clock::now());
  return std::max(0, static_cast<int>(left.count()));
}

void FirstByteWait::CloseSilent(Time now) {
  std::erase_if(until_, [&](const auto& waiting) {
    if (waiting.second > now) return false;
    close(waiting.first);  // which also takes it out of the epoll set
    return true;
  });
}

void FirstByteWait::CloseOldest() {
  const auto oldest =
      std::min_element(until_.begin(), until_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  close(oldest->first);
  until_.erase(oldest);
}

bool FirstByteWait::Forget(int connection) {
  if (until_.erase(connection) == 0) return false;
  epoll_ctl(epoll_, EPOLL_CTL_DEL, connection, nullptr);
  return true;
}

}  // namespace ptqwatch::internal
