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

/// Time as the library sees it; tests give a fake one. Thread-safe.
class PTQWATCH_EXPORT Clock {
 public:
  virtual ~Clock() = default;
  virtual std::chrono::nanoseconds Monotonic() const = 0;
  /// CPU time of the calling thread. By default Monotonic(), for clocks that stand still meanwhile.
  virtual std::chrono::nanoseconds ThreadCpu() const { return Monotonic(); }
  virtual double UnixSeconds() const = 0;
  /// Returns after `duration`, or earlier when `cancelled` becomes true.
  virtual void SleepFor(std::chrono::nanoseconds duration, const std::atomic<bool>& cancelled) = 0;
  /// The machine's clocks.
  static Clock* Real();
};

/// A flag that long work looks at every 50 ms or oftener. Copies share the flag. Thread-safe.
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

/// Keeps a thread to a share of the time: after `work` it sleeps work (1 / duty_cycle - 1). Work is
/// the thread's CPU time: waiting for a core that others use takes nothing from them. Copies count
/// together. For one thread, except SetDutyCycle.
class PTQWATCH_EXPORT Pacer {
 public:
  Pacer() = default;
  /// `duty_cycle` in (0, 1]; 1 never sleeps. Stretches shorter than `quantum` are added up before
  /// it sleeps.
  Pacer(double duty_cycle, Clock* clock,
        std::chrono::nanoseconds quantum = std::chrono::milliseconds(2))
      : state_(std::make_shared<State>(duty_cycle, clock, quantum)) {}
  /// From the next Begin on, work is what `work_time` grows by, for work that a device does. It is
  /// called by Begin, Pause and WorkTime, and must not throw.
  void CountBy(std::function<std::chrono::nanoseconds()> work_time) const;
  /// Call before a stretch of work; time since the last Pause is forgotten.
  void Begin() const;
  /// Call between small pieces of work.
  void Pause(const CancelToken& cancel) const;
  /// Any thread; a sleep under way becomes shorter or longer accordingly within 20 ms. No effect on
  /// a default-constructed Pacer.
  void SetDutyCycle(double duty_cycle) const;
  /// Called by Pause, before it sleeps, with the seconds of each stretch of work. May set the duty
  /// cycle. Must not throw.
  void OnWork(std::function<void(double seconds)> on_work) const;
  double duty_cycle() const { return state_ == nullptr ? 1 : state_->duty_cycle.load(); }
  /// Time slept, and time worked between Begin and Pause, so far.
  std::chrono::nanoseconds slept() const {
    return state_ == nullptr ? std::chrono::nanoseconds(0) : state_->slept;
  }
  std::chrono::nanoseconds worked() const {
    return state_ == nullptr ? std::chrono::nanoseconds(0) : state_->worked;
  }
  /// What differences are taken of to know how long it worked, without the time slept.
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
    std::chrono::nanoseconds rested{0};                   // what work_time grew by while it slept
    std::chrono::nanoseconds slept{0};
    std::chrono::nanoseconds worked{0};
    std::function<void(double)> on_work;
  };
  std::shared_ptr<State> state_;  // null: never sleeps
};

/// Seeds for counter-based generators: a function of (run seed, probe, draw index) and nothing
/// else, so that the same draw is repeated at every snapshot and trends are paired.
class PTQWATCH_EXPORT SeedSource {
 public:
  SeedSource() = default;
  explicit SeedSource(uint64_t run_seed) : run_seed_(run_seed) {}
  uint64_t Seed(std::string_view probe, uint64_t draw) const;

 private:
  uint64_t run_seed_ = 0;
};

/// An earlier deadline for work that is already under way. Copies share it. Thread-safe.
class SharedDeadline {
 public:
  SharedDeadline()
      : at_(std::make_shared<std::atomic<int64_t>>(std::chrono::nanoseconds::max().count())) {}
  /// On the context's clock, monotonic; max() is never.
  void Set(std::chrono::nanoseconds monotonic) const { at_->store(monotonic.count()); }
  std::chrono::nanoseconds get() const { return std::chrono::nanoseconds(at_->load()); }

 private:
  std::shared_ptr<std::atomic<int64_t>> at_;
};

/// Bytes that work may hold beyond its inputs. Thread-safe.
class PTQWATCH_EXPORT ByteBudget {
 public:
  explicit ByteBudget(int64_t limit = INT64_MAX) : limit_(limit) {}
  /// ResourceExhausted, naming `what`, when the limit would be passed.
  absl::Status Reserve(int64_t bytes, std::string_view what);
  void Release(int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  /// For later reservations; what is held already is kept.
  void SetLimit(int64_t limit) { limit_.store(limit, std::memory_order_relaxed); }
  int64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }
  /// What Reserve would still give; at least 0.
  int64_t remaining() const { return used() < limit() ? limit() - used() : 0; }
  /// The most that was ever in use.
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> limit_;
  std::atomic<int64_t> used_{0};
  std::atomic<int64_t> peak_{0};
};

/// The last argument of every engine call: cancellation, pace, seeds, memory and time. The default
/// is never cancelled, full speed, seed 0, no limit. For one thread at a time; copies share token,
/// pacer and budget. ForHelper makes one for another thread.
struct PTQWATCH_EXPORT ExecutionContext {
  CancelToken cancel;
  Pacer pacer;
  SeedSource seeds;
  std::shared_ptr<ByteBudget> bytes = std::make_shared<ByteBudget>();
  Clock* clock = Clock::Real();
  /// On the clock's monotonic time; the default is never.
  std::chrono::nanoseconds deadline = std::chrono::nanoseconds::max();
  /// Ends the work, too, where it is earlier. May be set while the work goes on.
  SharedDeadline hurry;
  /// Threads that work may use, the caller's included; at least 1. Results are the same bits for
  /// any number. The pacer's share holds only with 1, which is what a monitor uses.
  int threads = 1;

  /// CancelledError once the token is cancelled, DeadlineExceeded after the deadline; also gives
  /// the pacer its turn. Cheap enough for every few hundred microseconds.
  absl::Status Checkpoint() const;

  /// The context of a thread that helps this one: the same token, deadline, clock, seeds and bytes,
  /// but full speed and no helpers of its own.
  ExecutionContext ForHelper() const;

  /// The same context with another deadline.
  ExecutionContext WithDeadline(std::chrono::nanoseconds monotonic) const;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_EXECUTION_CONTEXT_H_
