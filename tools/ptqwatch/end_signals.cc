#include "end_signals.h"

#include <errno.h>

#include <initializer_list>

namespace ptqwatch::internal {

EndSignals::EndSignals() {
  sigemptyset(&waited_for_);
  for (const int number : {SIGINT, SIGTERM}) {
    struct sigaction action {};
    // Shells start background jobs of scripts with SIGINT ignored.
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

}  // namespace ptqwatch::internal
