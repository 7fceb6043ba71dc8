#include "base/signals.h"

#include <pthread.h>

namespace ptqwatch::internal {

BlockSignals::BlockSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}

BlockSignals::~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace ptqwatch::internal
