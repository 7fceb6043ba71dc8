#ifndef PTQWATCH_EXECUTION_CONTEXT_H_
#define PTQWATCH_EXECUTION_CONTEXT_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "ptqwatch/config.h"

namespace ptqwatch {

/// The library's source of time; tests pass a fake one. Thread-safe.
class PTQWATCH_EXPORT Clock {
 public:
  virtual ~Clock() = default;
  virtual std::chrono::nanoseconds Monotonic() const = 0;
  /// CPU time of the calling thread. By default Monotonic(), for clocks that do not advance during
  /// work.
  virtual std::chrono::nanoseconds ThreadCpu() const { return Monotonic(); }
  virtual double UnixSeconds() const = 0;
  /// Returns after `duration`, or earlier when `cancelled` becomes true.
  virtual void SleepFor(std::chrono::nanoseconds duration, const std::atomic<bool>& cancelled) = 0;
  /// The machine's clocks.
  static Clock* Real();
};

/// A flag that long work checks at least every 50 ms. Copies share the flag. Thread-safe.
class CancelToken {
 public:
  CancelToken() : flag_(std::make_shared<std::atomic<bool>>(false)) {}
  void Cancel() { flag_->store(true, std::memory_order_relaxed); }
  void Reset() { flag_->store(false, std::memory_order_relaxed); }
  bool cancelled() const { return flag_->load(std::memory_order_relaxed); }
  const std::atomic<bool>& flag() const { return *flag_; }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

/// Limits a thread to a share of the time: after `work` it sleeps for work * (1 / duty_cycle - 1).
/// Work is the thread's CPU time, because waiting for a busy core takes nothing from others. Copies
/// share one account. For one thread, except SetDutyCycle.
class PTQWATCH_EXPORT Pacer {
 public:
  Pacer() = default;
  /// `duty_cycle` is in (0, 1]; 1 never sleeps. Stretches of work shorter than `quantum` are added
  /// up before the thread sleeps.
  Pacer(double duty_cycle, Clock* clock,
        std::chrono::nanoseconds quantum = std::chrono::milliseconds(2))
      : state_(std::make_shared<State>(duty_cycle, clock, quantum)) {}
  /// For work done by a device: from the next Begin on, work is the increase of `work_time`, which
  /// Begin, Pause and WorkTime call. It must not throw.
  void CountBy(std::function<std::chrono::nanoseconds()> work_time) const;
  /// Call before a stretch of work; time since the last Pause is not counted.
  void Begin() const;
  /// Call between small pieces of work.
  void Pause(const CancelToken& cancel) const;
  /// May be called on any thread; a sleep in progress is shortened or extended within 20 ms. No
  /// effect on a default-constructed Pacer.
  void SetDutyCycle(double duty_cycle) const;
  /// Pause calls `on_work` before it sleeps, with the seconds of each stretch of work. It may set
  /// the duty cycle. It must not throw.
  void OnWork(std::function<void(double seconds)> on_work) const;
  double duty_cycle() const { return state_ == nullptr ? 1 : state_->duty_cycle.load(); }
  /// Total time slept, and total time worked between Begin and Pause.
  std::chrono::nanoseconds slept() const {
    return state_ == nullptr ? std::chrono::nanoseconds(0) : state_->slept;
  }
  std::chrono::nanoseconds worked() const {
    return state_ == nullptr ? std::chrono::nanoseconds(0) : state_->worked;
  }
  /// A running total without time slept: the difference of two values is the work between them.
  std::chrono::nanoseconds WorkTime(const Clock& clock) const;

 private:
  struct State {
    State(double duty_cycle_in, Clock* clock_in, std::chrono::nanoseconds quantum_in)
        : duty_cycle(duty_cycle_in), clock(clock_in), quantum(quantum_in) {}
    std::atomic<double> duty_cycle;
    Clock* const clock;
    const std::chrono::nanoseconds quantum;
    std::function<std::chrono::nanoseconds()> work_time;  // empty: the thread's CPU time
    std::chrono::nanoseconds since{0};                    // of WorkTime
    std::chrono::nanoseconds rested{0};                   // growth of work_time during sleep
    std::chrono::nanoseconds slept{0};
    std::chrono::nanoseconds worked{0};
    std::function<void(double)> on_work;
  };
  std::shared_ptr<State> state_;  // null: never sleeps
};

/// Seeds for counter-based generators. A seed depends only on (run seed, probe, draw index), so
/// every snapshot repeats the same draws and trends are paired.
class PTQWATCH_EXPORT SeedSource {
 public:
  SeedSource() = default;
  explicit SeedSource(uint64_t run_seed) : run_seed_(run_seed) {}
  uint64_t Seed(std::string_view probe, uint64_t draw) const;

 private:
  uint64_t run_seed_ = 0;
};

/// An earlier deadline for work that has already begun. Copies share it. Thread-safe.
class SharedDeadline {
 public:
  SharedDeadline()
      : at_(std::make_shared<std::atomic<int64_t>>(std::chrono::nanoseconds::max().count())) {}
  /// Monotonic time of the context's clock; max() is never.
  void Set(std::chrono::nanoseconds monotonic) const { at_->store(monotonic.count()); }
  std::chrono::nanoseconds get() const { return std::chrono::nanoseconds(at_->load()); }

 private:
  std::shared_ptr<std::atomic<int64_t>> at_;
};

/// Limits the bytes that work may hold beyond its inputs. Thread-safe.
class PTQWATCH_EXPORT ByteBudget {
 public:
  explicit ByteBudget(int64_t limit = INT64_MAX) : limit_(limit) {}
  /// ResourceExhausted, naming `what`, if the limit would be exceeded.
  absl::Status Reserve(int64_t bytes, std::string_view what);
  void Release(int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  /// Applies to later reservations; bytes already held are kept.
  void SetLimit(int64_t limit) { limit_.store(limit, std::memory_order_relaxed); }
  int64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }
  /// Bytes that Reserve would still grant; at least 0.
  int64_t remaining() const { return used() < limit() ? limit() - used() : 0; }
  /// Largest number of bytes ever in use.
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> limit_;
  std::atomic<int64_t> used_{0};
  std::atomic<int64_t> peak_{0};
};

/// The last argument of every engine call: cancellation, pace, seeds, memory and time. The default
/// is never cancelled, runs at full speed with seed 0, and has no limits. For one thread at a time;
/// copies share token, pacer and budget. ForHelper makes a context for another thread.
struct PTQWATCH_EXPORT ExecutionContext {
  CancelToken cancel;
  Pacer pacer;
  SeedSource seeds;
  std::shared_ptr<ByteBudget> bytes = std::make_shared<ByteBudget>();
  /// Host memory, if `bytes` is the memory of a GPU; null means `bytes`.
  std::shared_ptr<ByteBudget> host_bytes = {};
  Clock* clock = Clock::Real();
  /// In the clock's monotonic time; by default never.
  std::chrono::nanoseconds deadline = std::chrono::nanoseconds::max();
  /// Also ends the work, if it is earlier than `deadline`. May be set while the work runs.
  SharedDeadline hurry;
  /// Threads that the work may use, including the caller's; at least 1. Results are the same bits
  /// for any number. The pacer's share holds only with 1, which a monitor uses.
  int threads = 1;

  /// CancelledError once the token is cancelled, DeadlineExceeded after the deadline; also lets the
  /// pacer sleep. Cheap enough to call every few hundred microseconds.
  absl::Status Checkpoint() const;

  /// A context for a thread that helps this one: the same token, deadline, clock, seeds and bytes,
  /// but at full speed and without helpers of its own.
  ExecutionContext ForHelper() const;

  /// The same context with another deadline.
  ExecutionContext WithDeadline(std::chrono::nanoseconds monotonic) const;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_EXECUTION_CONTEXT_H_
