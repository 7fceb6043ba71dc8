#ifndef PTQWATCH_BASE_STOPWATCH_H_
#define PTQWATCH_BASE_STOPWATCH_H_

#include <chrono>
#include <utility>

#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

template <typename Rep, typename Period>
double InSeconds(std::chrono::duration<Rep, Period> duration) {
  return std::chrono::duration<double>(duration).count();
}

/// Measures seconds since it was created, or since the last Lap.
class Stopwatch {
 public:
  explicit Stopwatch(Clock* clock) : clock_(clock), begin_(clock->Monotonic()) {}
  double Lap() {
    const auto now = clock_->Monotonic();
    return InSeconds(now - std::exchange(begin_, now));
  }

 private:
  Clock* clock_;
  std::chrono::nanoseconds begin_;
};

/// Measures seconds of work of the calling thread since it was created, as counted by the context's
/// pacer.
class WorkStopwatch {
 public:
  explicit WorkStopwatch(const ExecutionContext& context) : context_(context), begin_(Now()) {}
  double seconds() const { return InSeconds(Now() - begin_); }

 private:
  std::chrono::nanoseconds Now() const { return context_.pacer.WorkTime(*context_.clock); }
  const ExecutionContext& context_;
  const std::chrono::nanoseconds begin_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_STOPWATCH_H_
