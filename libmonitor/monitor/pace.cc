#include "monitor/pace.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/thread_priority.h"

namespace ptqwatch::internal {
namespace {

constexpr double kReadingSeconds = 1;

}  // namespace

Pace::Pace(const Governor::Options& options, Clock* clock, Pacer pacer,
           std::shared_ptr<TrainerSwitches> switches, std::shared_ptr<StatusBoard> board,
           ReadFunction read)
    : clock_(clock),
      pacer_(std::move(pacer)),
      switches_(std::move(switches)),
      board_(std::move(board)),
      read_(std::move(read)),
      may_idle_(IdlePriorityCanBeLeft()),
      governor_(options, Now()) {}

double Pace::Now() const { return std::chrono::duration<double>(clock_->Monotonic()).count(); }

void Pace::Enter(std::function<void()> between) {
  governor_.Read(read_());
  pacer_.OnWork([this, between = std::move(between)](double seconds) {
    const double now = Now();
    governor_.Worked(seconds, now);
    board_->Alive(now);
    between();
    if (now < next_reading_) return;
    next_reading_ = now + kReadingSeconds;
    governor_.Read(read_());
    Apply();
  });
  Apply();
}

void Pace::BeginSnapshot() {
  measuring_ = true;
  switches_->measuring.store(true, std::memory_order_relaxed);
  governor_.Read(read_());
  Apply();
  pacer_.Begin();
}

void Pace::EndSnapshot() {
  measuring_ = false;
  switches_->measuring.store(false, std::memory_order_relaxed);
  Apply();
}

bool Pace::spare_time() const { return governor_.spare() || unhindered() || governor_.told(); }

bool Pace::BeginSpareTime() {
  governor_.Read(read_());
  if (!spare_time()) return false;
  spare_time_ = true;
  switches_->measuring.store(true, std::memory_order_relaxed);
  Apply();
  pacer_.Begin();
  return true;
}

void Pace::EndSpareTime() {
  spare_time_ = false;
  switches_->measuring.store(false, std::memory_order_relaxed);
  Apply();
}

void Pace::Slowed(const Slowdown& slowdown) {
  board_->AddLostSeconds(slowdown.lost_seconds, Now());
  if (!unhindered()) governor_.Slowed(slowdown.ratio, slowdown.stderr_ratio);
}

void Pace::Apply() {
  governor_.SetUnhindered(unhindered());
  const double share = governor_.share();
  // What can wait leaves half of the allowance to snapshots, whose rests would otherwise never end.
  const double sustained = governor_.long_run_share() * (governor_.rests() ? 0.5 : 1);
  pacer_.SetDutyCycle(spare_time_ ? std::min(share, sustained) : share);
  board_->SetDutyCycle(governor_.long_run_share());
  SetThreadPriority(Priority());
  int64_t rest_until = 0;
  if (governor_.rests()) {
    rest_until = measuring_ ? std::numeric_limits<int64_t>::max()
                            : static_cast<int64_t>(1e9 * (Now() + governor_.RestSeconds(Now())));
  }
  switches_->rest_until_ns.store(rest_until, std::memory_order_relaxed);
}

// At idle priority a thread gives its core up at once to any other that becomes runnable, but where
// the cores are kept busy it would not run at all.
ThreadPriority Pace::Priority() const {
  if (unhindered()) return ThreadPriority::kBatch;
  if (governor_.spare()) return may_idle_ ? ThreadPriority::kIdle : ThreadPriority::kBatch;
  return governor_.told() ? ThreadPriority::kBatch : ThreadPriority::kLow;
}

void Pace::BeginUnhindered() {
  unhindered_.fetch_add(1, std::memory_order_relaxed);
  pacer_.SetDutyCycle(1);
  switches_->rest_until_ns.store(0, std::memory_order_relaxed);
}

}  // namespace ptqwatch::internal
