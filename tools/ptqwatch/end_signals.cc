#include "end_signals.h"

#include <errno.h>

#include <initializer_list>

namespace ptqwatch::internal {

EndSignals::EndSignals() {
  sigemptyset(&waited_for_);
  for (const int number : {SIGINT, SIGTERM}) {
    struct sigaction action {};
    // Shells start the background jobs of scripts with SIGINT ignored.
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    sigaddset(&waited_for_, number);
  }
  pthread_sigmask(SIG_BLOCK, &waited_for_, &before_);
}

EndSignals::~EndSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void EndSignals::Wait() const {
  int number = 0;
  while (sigwait(&waited_for_, &number) == EINTR) {
  }
}

bool EndSignals::WaitFor(std::chrono::milliseconds timeout) const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec time = {.tv_sec = seconds.count(),
                         .tv_nsec = std::chrono::nanoseconds(timeout - seconds).count()};
  return sigtimedwait(&waited_for_, nullptr, &time) > 0;
}

}  // namespace ptqwatch::internal
