#include "stop_on_signal.h"

#include <unistd.h>

#include <utility>

namespace ptqwatch::tools {

StopOnSignal::StopOnSignal(CancelToken cancel) {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  thread_ = std::thread(&StopOnSignal::Wait, this, std::move(cancel));
}

StopOnSignal::~StopOnSignal() {
  done_ = true;
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void StopOnSignal::Wait(CancelToken cancel) {
  constexpr timespec kInterval{.tv_sec = 0, .tv_nsec = 50'000'000};
  while (!done_) {
    const int number = sigtimedwait(&signals_, nullptr, &kInterval);
    if (number <= 0) continue;
    if (number_ != 0) _exit(128 + number);
    number_ = number;
    cancel.Cancel();
  }
}

}  // namespace ptqwatch::tools
