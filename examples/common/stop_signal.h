#ifndef PTQWATCH_COMMON_STOP_SIGNAL_H_
#define PTQWATCH_COMMON_STOP_SIGNAL_H_

#include <chrono>
#include <csignal>

namespace ptqwatch::examples {

/// Turns the first SIGINT or SIGTERM into a flag that the training loop looks at; a second one ends
/// the process at once. One object at a time; its destructor gives the signals back.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
  /// 130 after SIGINT, 143 after SIGTERM, else 0.
  int exit_code() const;
  /// Sleeps until a signal comes or `duration` has passed; returns requested().
  bool WaitFor(std::chrono::milliseconds duration) const;

 private:
  struct sigaction old_interrupt_;
  struct sigaction old_terminate_;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_STOP_SIGNAL_H_
