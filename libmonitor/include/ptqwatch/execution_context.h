#ifndef PTQWATCH_EXECUTION_CONTEXT_H_
#define PTQWATCH_EXECUTION_CONTEXT_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/status.h"

namespace ptqwatch {

/// Time as the library sees it; tests give a fake one. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::chrono::nanoseconds Monotonic() const = 0;
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

/// Keeps a thread to a share of wall-clock time: after each stretch of work it sleeps for work * (1
/// / duty_cycle - 1). Copies count together. Not thread-safe:
/// one thread's own.
class Pacer {
 public:
  Pacer() = default;
  /// `duty_cycle` in (0, 1]; 1 never sleeps. Stretches shorter than `quantum` are added up before
  /// it sleeps.
  Pacer(double duty_cycle, Clock* clock,
        std::chrono::nanoseconds quantum = std::chrono::milliseconds(2))
      : state_(std::make_shared<State>(State{duty_cycle, clock, quantum})) {}
  /// Call before a stretch of work; time since the last Pause is forgotten.
  void Begin() const;
  /// Call between small pieces of work.
  void Pause(const CancelToken& cancel) const;
  double duty_cycle() const { return state_ == nullptr ? 1 : state_->duty_cycle; }
  std::chrono::nanoseconds slept() const {
    return state_ == nullptr ? std::chrono::nanoseconds(0) : state_->slept;
  }

 private:
  struct State {
    double duty_cycle = 1;
    Clock* clock = nullptr;
    std::chrono::nanoseconds quantum{0};
    std::chrono::nanoseconds since{0};
    std::chrono::nanoseconds slept{0};
  };
  std::shared_ptr<State> state_;  // null: never sleeps
};

/// Seeds for counter-based generators: a function of (run seed, probe, draw index) and nothing
/// else, so that the same draw is repeated at every snapshot and trends are paired.
class SeedSource {
 public:
  SeedSource() = default;
  explicit SeedSource(uint64_t run_seed) : run_seed_(run_seed) {}
  uint64_t Seed(std::string_view probe, uint64_t draw) const;

 private:
  uint64_t run_seed_ = 0;
};

/// Bytes that work may hold beyond its inputs. Thread-safe.
class ByteBudget {
 public:
  explicit ByteBudget(int64_t limit = INT64_MAX) : limit_(limit) {}
  /// ResourceExhausted, naming `what`, when the limit would be passed.
  absl::Status Reserve(int64_t bytes, std::string_view what);
  void Release(int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }
  int64_t limit() const { return limit_; }

 private:
  int64_t limit_;
  std::atomic<int64_t> used_{0};
};

/// What every engine call takes last: who may stop it, how fast it may go, where its randomness and
/// memory come from. The default is that of a plain library: never cancelled, full speed, seed 0,
/// no limit. One thread's own at a time; copies share token, pacer and budget. ForHelper makes one
/// for another thread.
struct ExecutionContext {
  CancelToken cancel;
  Pacer pacer;
  SeedSource seeds;
  std::shared_ptr<ByteBudget> bytes = std::make_shared<ByteBudget>();
  Clock* clock = Clock::Real();
  /// On the clock's monotonic time; the default is never.
  std::chrono::nanoseconds deadline = std::chrono::nanoseconds::max();
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
