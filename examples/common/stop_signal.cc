#include "stop_signal.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <string>

namespace ptqwatch::examples {
namespace {

constexpr std::chrono::minutes kFinishTimeout(5);

// The handler may run on any thread, so a pipe rather than EINTR wakes the main thread from Sleep.
std::atomic<int> received{0};
int wake_pipe[2] = {-1, -1};

static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may touch nothing else");

// Created before the handler is installed. Cancelling it is one atomic store.
CancelToken& Cancel() {
  static CancelToken* token = new CancelToken;
  return *token;
}

void OnSignal(int number) {
  if (received.exchange(number) != 0) _exit(128 + number);
  Cancel().Cancel();
  const int saved_errno = errno;
  [[maybe_unused]] const ssize_t written = write(wake_pipe[1], "", 1);
  errno = saved_errno;
}

}  // namespace

StopSignal::StopSignal() {
  received = 0;
  Cancel().Reset();
  // Without a pipe, Sleep works but a signal does not interrupt it.
  if (pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0) wake_pipe[0] = wake_pipe[1] = -1;
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &old_interrupt_);
  sigaction(SIGTERM, &action, &old_terminate_);
  // A shell starts background jobs of scripts with SIGINT ignored; keep it so.
  if (old_interrupt_.sa_handler == SIG_IGN) sigaction(SIGINT, &old_interrupt_, nullptr);
  if (old_terminate_.sa_handler == SIG_IGN) sigaction(SIGTERM, &old_terminate_, nullptr);
}

StopSignal::~StopSignal() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
  for (int& end : wake_pipe) {
    if (end >= 0) close(end);
    end = -1;
  }
}

bool StopSignal::requested() const { return received.load(std::memory_order_relaxed) != 0; }

int StopSignal::exit_code() const { return requested() ? 128 + received.load() : 0; }

void StopSignal::Sleep(std::chrono::milliseconds duration) const {
  const auto end = std::chrono::steady_clock::now() + duration;
  while (!requested()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return;
    pollfd wake{.fd = wake_pipe[0], .events = POLLIN, .revents = 0};
    poll(&wake, 1, static_cast<int>(std::min<int64_t>(left.count(), 60'000)));
  }
}

void StopSignal::Finish(Monitor& monitor) const {
  if (requested()) return;
  const absl::Status status = monitor.Finish(kFinishTimeout, Cancel());
  if (status.ok() || requested()) return;
  std::fprintf(stderr, "the last step was not measured: %s\n", status.ToString().c_str());
}

int StopSignal::Linger(Monitor* monitor, double seconds) const {
  if (monitor != nullptr) {
    Sleep(std::chrono::milliseconds(std::llround(1e3 * seconds)));
    monitor->Stop(std::chrono::seconds(5)).IgnoreError();
  }
  return exit_code();
}

}  // namespace ptqwatch::examples
