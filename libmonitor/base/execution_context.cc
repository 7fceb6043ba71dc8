#include "ptqwatch/execution_context.h"

#include <time.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/process_end.h"
#include "base/stopwatch.h"
#include "base/strings.h"

namespace ptqwatch {
namespace {

class RealClock final : public Clock {
 public:
  std::chrono::nanoseconds Monotonic() const override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
  std::chrono::nanoseconds ThreadCpu() const override {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
  double UnixSeconds() const override {
    return internal::InSeconds(std::chrono::system_clock::now().time_since_epoch());
  }
  void SleepFor(std::chrono::nanoseconds duration, const std::atomic<bool>& cancelled) override {
    const auto end = std::chrono::steady_clock::now() + duration;
    while (!cancelled.load(std::memory_order_relaxed)) {
      const auto now = std::chrono::steady_clock::now();
      if (now >= end) return;
      std::this_thread::sleep_for(
          std::min<std::chrono::nanoseconds>(end - now, std::chrono::milliseconds(20)));
    }
  }
};

// Longest single sleep, so that a new duty cycle soon takes effect.
constexpr std::chrono::milliseconds kLongestSleep{20};

// SplitMix64 finaliser (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

Clock* Clock::Real() {
  static RealClock* clock = new RealClock;
  return clock;
}

std::chrono::nanoseconds Pacer::WorkTime(const Clock& clock) const {
  return state_ != nullptr && state_->work_time ? state_->work_time() - state_->rested
                                                : clock.ThreadCpu();
}

void Pacer::CountBy(std::function<std::chrono::nanoseconds()> work_time) const {
  if (state_ != nullptr) state_->work_time = std::move(work_time);
}

void Pacer::Begin() const {
  if (state_ != nullptr && state_->clock != nullptr) state_->since = WorkTime(*state_->clock);
}

void Pacer::Pause(const CancelToken& cancel) const {
  if (state_ == nullptr || state_->clock == nullptr) return;
  State& state = *state_;
  const std::chrono::nanoseconds before = WorkTime(*state.clock);
  const std::chrono::nanoseconds worked = before - state.since;
  if (worked < state.quantum) return;
  const std::chrono::nanoseconds begin = state.clock->Monotonic();
  state.worked += worked;
  if (state.on_work) state.on_work(internal::InSeconds(worked));
  std::chrono::nanoseconds now = begin;
  while (!cancel.cancelled()) {
    const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(
        worked * (1.0 / state.duty_cycle.load(std::memory_order_relaxed) - 1.0));
    const std::chrono::nanoseconds left = begin + rest - now;
    if (left.count() <= 0) break;
    state.clock->SleepFor(std::min<std::chrono::nanoseconds>(left, kLongestSleep), cancel.flag());
    now = state.clock->Monotonic();
  }
  state.slept += now - begin;
  if (state.work_time) state.rested += WorkTime(*state.clock) - before;
  state.since = WorkTime(*state.clock);
}

void Pacer::SetDutyCycle(double duty_cycle) const {
  if (state_ != nullptr) state_->duty_cycle.store(duty_cycle, std::memory_order_relaxed);
}

void Pacer::OnWork(std::function<void(double seconds)> on_work) const {
  if (state_ != nullptr) state_->on_work = std::move(on_work);
}

uint64_t SeedSource::Seed(std::string_view probe, uint64_t draw) const {
  uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a: the same on every machine, unlike std::hash
  for (char c : probe) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return Mix(run_seed_ + Mix(hash + Mix(draw + 0x9e3779b97f4a7c15ULL)));
}

absl::Status ByteBudget::Reserve(int64_t bytes, std::string_view what) {
  const int64_t limit = this->limit();
  const int64_t before = used_.fetch_add(bytes, std::memory_order_relaxed);
  if (bytes > limit || before > limit - bytes) {
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    return absl::ResourceExhaustedError(internal::StrCat(what, " needs ", bytes, " bytes, but ",
                                                         before, " of the budget of ", limit,
                                                         " are in use"));
  }
  int64_t peak = peak_.load(std::memory_order_relaxed);
  while (before + bytes > peak &&
         !peak_.compare_exchange_weak(peak, before + bytes, std::memory_order_relaxed)) {
  }
  return absl::OkStatus();
}

absl::Status ExecutionContext::Checkpoint() const {
  internal::StayIfProcessEnds();
  if (!cancel.cancelled()) pacer.Pause(cancel);
  if (cancel.cancelled()) return absl::CancelledError("the monitor is being stopped");
  const std::chrono::nanoseconds until = std::min(deadline, hurry.get());
  if (until != std::chrono::nanoseconds::max() && clock->Monotonic() >= until) {
    return absl::DeadlineExceededError("the time for this snapshot is over");
  }
  return absl::OkStatus();
}

ExecutionContext ExecutionContext::ForHelper() const {
  ExecutionContext helper = *this;
  helper.pacer = Pacer();
  helper.threads = 1;
  return helper;
}

ExecutionContext ExecutionContext::WithDeadline(std::chrono::nanoseconds monotonic) const {
  ExecutionContext context = *this;
  context.deadline = monotonic;
  return context;
}

}  // namespace ptqwatch
