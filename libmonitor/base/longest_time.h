#ifndef PTQWATCH_BASE_LONGEST_TIME_H_
#define PTQWATCH_BASE_LONGEST_TIME_H_

#include <algorithm>
#include <chrono>

namespace ptqwatch::internal {

/// The duration, but a year if it is longer: milliseconds::max() would overflow a clock.
inline std::chrono::milliseconds AtMostAYear(std::chrono::milliseconds duration) {
  return std::min<std::chrono::milliseconds>(duration, std::chrono::hours(24 * 365));
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_LONGEST_TIME_H_
