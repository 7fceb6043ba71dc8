#ifndef PTQWATCH_COMMON_STOP_SIGNAL_H_
#define PTQWATCH_COMMON_STOP_SIGNAL_H_

#include <chrono>
#include <csignal>

#include "ptqwatch/monitor.h"

namespace ptqwatch::examples {

/// Turns the first SIGINT or SIGTERM into a flag that the training loop looks at; a second one ends
/// the process at once. One object at a time; its destructor restores the signal handlers.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
  /// 130 after SIGINT, 143 after SIGTERM, else 0.
  int exit_code() const;
  /// Sleeps until a signal comes or `duration` has passed.
  void Sleep(std::chrono::milliseconds duration) const;
  /// Monitor::Finish, unless a signal came, and ended early by one. Waits for at most five minutes.
  /// If the last step was not measured, says why on standard error.
  void Finish(Monitor& monitor) const;

 private:
  struct sigaction old_interrupt_;
  struct sigaction old_terminate_;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_STOP_SIGNAL_H_
