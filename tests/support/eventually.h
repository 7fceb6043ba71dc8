#ifndef PTQWATCH_TESTS_SUPPORT_EVENTUALLY_H_
#define PTQWATCH_TESTS_SUPPORT_EVENTUALLY_H_

#include <chrono>
#include <thread>

namespace ptqwatch::testing {

/// Polls for a state that is reached without a notification. Returns false after 20 s.
template <typename Condition>
bool Eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_EVENTUALLY_H_
