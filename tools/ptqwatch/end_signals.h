#ifndef PTQWATCH_TOOLS_PTQWATCH_END_SIGNALS_H_
#define PTQWATCH_TOOLS_PTQWATCH_END_SIGNALS_H_

#include <signal.h>

#include <chrono>

namespace ptqwatch::internal {

/// Holds back SIGINT and SIGTERM, unless they are ignored, for this thread and those that it
/// starts, so that a server can end in order.
class EndSignals {
 public:
  EndSignals();
  /// Restores the mask.
  ~EndSignals();
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  /// Returns when one of them has come.
  void Wait() const;
  /// Waits at most so long. Whether one has come.
  bool WaitFor(std::chrono::milliseconds timeout) const;

 private:
  sigset_t waited_for_{};
  sigset_t before_{};
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_END_SIGNALS_H_
