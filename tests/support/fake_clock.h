#ifndef PTQWATCH_TESTS_SUPPORT_FAKE_CLOCK_H_
#define PTQWATCH_TESTS_SUPPORT_FAKE_CLOCK_H_

#include <atomic>

#include "ptqwatch/execution_context.h"

namespace ptqwatch::testing {

/// A clock that only Advance, Wait and SleepFor move.
class FakeClock final : public Clock {
 public:
  std::chrono::nanoseconds Monotonic() const override {
    return std::chrono::nanoseconds(now_.load());
  }
  std::chrono::nanoseconds ThreadCpu() const override {
    return std::chrono::nanoseconds(worked_.load());
  }
  double UnixSeconds() const override {
    return unix_.load() + static_cast<double>(now_.load()) * 1e-9;
  }
  void SleepFor(std::chrono::nanoseconds duration, const std::atomic<bool>&) override {
    now_ += duration.count();
    slept_ += duration.count();
  }
  /// Advances time while the calling thread works.
  void Advance(std::chrono::nanoseconds duration) {
    now_ += duration.count();
    worked_ += duration.count();
  }
  /// Advances time while the calling thread waits for a core.
  void Wait(std::chrono::nanoseconds duration) { now_ += duration.count(); }
  /// Sets the time of day, as a user could.
  void SetUnixSeconds(double seconds) { unix_ = seconds; }
  std::chrono::nanoseconds slept() const { return std::chrono::nanoseconds(slept_.load()); }

 private:
  std::atomic<int64_t> now_{1};
  std::atomic<int64_t> worked_{0};
  std::atomic<int64_t> slept_{0};
  std::atomic<double> unix_{1.7e9};
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_FAKE_CLOCK_H_
