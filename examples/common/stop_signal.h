#ifndef PTQWATCH_COMMON_STOP_SIGNAL_H_
#define PTQWATCH_COMMON_STOP_SIGNAL_H_

#include <chrono>
#include <csignal>

#include "ptqwatch/monitor.h"

namespace ptqwatch::examples {

/// Turns the first SIGINT or SIGTERM into a flag for the training loop. A second signal ends the
/// process at once. Only one object may exist; its destructor restores the handlers.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
  /// 130 after SIGINT, 143 after SIGTERM, else 0.
  int exit_code() const;
  /// Sleeps until `duration` has passed or a signal arrives.
  void Sleep(std::chrono::milliseconds duration) const;
  /// Calls Monitor::Finish unless a signal has arrived; a later signal ends the call early. Waits
  /// at most five minutes. If the last step was not measured, prints the reason on standard error.
  void Finish(Monitor& monitor) const;
  /// Keeps the monitor, if it is not null, for so long or until a signal arrives, and stops it.
  /// Returns exit_code().
  int Linger(Monitor* monitor, double seconds) const;

 private:
  struct sigaction old_interrupt_;
  struct sigaction old_terminate_;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_STOP_SIGNAL_H_
