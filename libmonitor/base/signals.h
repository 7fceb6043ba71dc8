#ifndef PTQWATCH_BASE_SIGNALS_H_
#define PTQWATCH_BASE_SIGNALS_H_

#include <signal.h>

namespace ptqwatch::internal {

/// Blocks all signals of the calling thread for its lifetime, so that threads created meanwhile
/// start with all signals blocked.
class BlockSignals {
 public:
  BlockSignals();
  ~BlockSignals();
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_SIGNALS_H_
