#ifndef PTQWATCH_TOOLS_PTQWATCH_END_SIGNALS_H_
#define PTQWATCH_TOOLS_PTQWATCH_END_SIGNALS_H_

#include <signal.h>

#include <chrono>

namespace ptqwatch::internal {

/// Blocks SIGINT and SIGTERM, unless they are ignored, for this thread and threads that it starts,
/// so that a server can shut down cleanly.
class EndSignals {
 public:
  EndSignals();
  ~EndSignals();
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  /// Returns when one of the signals has arrived.
  void Wait() const;
  /// The same with a timeout. Returns whether one has arrived.
  bool WaitFor(std::chrono::milliseconds timeout) const;

 private:
  sigset_t waited_for_{};
  sigset_t before_{};
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_END_SIGNALS_H_
