#ifndef PTQWATCH_TESTS_BENCHMARKS_HELD_CLOCK_H_
#define PTQWATCH_TESTS_BENCHMARKS_HELD_CLOCK_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "ptqwatch/execution_context.h"

namespace ptqwatch::benchmarks {

/// The machine's clock, with which the trainer can hold up the monitor: while it is held, time
/// stands still, and any other thread that asks for it waits. The monitor thread asks at every
/// checkpoint of its engines, so it stops there and goes on as if nothing had been.
class HeldClock final : public Clock {
 public:
  /// On the trainer's thread.
  HeldClock() = default;

  std::chrono::nanoseconds Monotonic() const override {
    std::unique_lock lock(mutex_);
    if (std::this_thread::get_id() != trainer_ && held_) {
      ++waiting_;
      changed_.wait(lock, [this] { return !held_; });
      --waiting_;
    }
    return (held_ ? held_since_ : Clock::Real()->Monotonic()) - stood_still_;
  }
  std::chrono::nanoseconds ThreadCpu() const override {
    (void)Monotonic();  // waits while it is held
    return Clock::Real()->ThreadCpu();
  }
  double UnixSeconds() const override { return Clock::Real()->UnixSeconds(); }
  void SleepFor(std::chrono::nanoseconds duration, const std::atomic<bool>& cancelled) override {
    Clock::Real()->SleepFor(duration, cancelled);
  }

  void Hold() {
    const std::lock_guard lock(mutex_);
    if (held_) return;
    held_ = true;
    held_since_ = Clock::Real()->Monotonic();
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    if (!held_) return;
    held_ = false;
    stood_still_ += Clock::Real()->Monotonic() - held_since_;
    changed_.notify_all();
  }
  /// Whether a thread waits for Release.
  bool holds() const {
    const std::lock_guard lock(mutex_);
    return waiting_ > 0;
  }

 private:
  const std::thread::id trainer_ = std::this_thread::get_id();
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int waiting_ = 0;
  bool held_ = false;
  std::chrono::nanoseconds held_since_{0};
  std::chrono::nanoseconds stood_still_{0};
};

}  // namespace ptqwatch::benchmarks

#endif  // PTQWATCH_TESTS_BENCHMARKS_HELD_CLOCK_H_
