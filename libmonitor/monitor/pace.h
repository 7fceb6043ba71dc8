#ifndef PTQWATCH_MONITOR_PACE_H_
#define PTQWATCH_MONITOR_PACE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "base/cpu_reading.h"
#include "base/thread_priority.h"
#include "monitor/governor.h"
#include "monitor/status_board.h"
#include "monitor/step_times.h"
#include "ptqwatch/execution_context.h"
#include "trainer/trainer_switches.h"

namespace ptqwatch::internal {

/// Puts the governor's decisions into effect: the pacer's duty cycle, the thread's priority, and
/// whether due snapshots are taken. For the monitor thread, except where a member says otherwise.
class Pace {
 public:
  using ReadFunction = std::function<std::optional<CpuReading>()>;
  /// `pacer` is the one of the context that snapshots are measured with. Tests give another `read`.
  Pace(
      const Governor::Options& options, Clock* clock, Pacer pacer,
      std::shared_ptr<TrainerSwitches> switches, std::shared_ptr<StatusBoard> board,
      ReadFunction read = [] { return ReadCpu(); });

  /// First thing on the monitor thread. `between` is called between small pieces of work and must
  /// not throw.
  void Enter(std::function<void()> between = [] {});
  /// Around each snapshot. Where no core is spare, no further one is taken from the beginning of
  /// this one until the rest after it is over.
  void BeginSnapshot();
  void EndSnapshot();

  /// Around work that can wait until nothing else is to be done. Snapshots are taken meanwhile; it
  /// goes at the pace that can be kept up. False where no core is spare: then it may not begin.
  bool BeginSpareTime();
  void EndSpareTime();
  /// Whether work that can wait may go on.
  bool spare_time() const;

  /// Any thread: full speed while training waits or is over. Each Begin is followed by an End;
  /// after the last one, Refresh on the monitor thread puts its rest into effect again.
  void BeginUnhindered();
  void EndUnhindered() { unhindered_.fetch_sub(1, std::memory_order_relaxed); }
  bool unhindered() const { return unhindered_.load(std::memory_order_relaxed) > 0; }
  void Refresh() { Apply(); }

  /// After a snapshot, where the steps of training took longer while it was measured than before.
  void Slowed(const Slowdown& slowdown);

  const Governor& governor() const { return governor_; }

 private:
  double Now() const;
  ThreadPriority Priority() const;
  void Apply();

  Clock* const clock_;
  const Pacer pacer_;
  const std::shared_ptr<TrainerSwitches> switches_;
  const std::shared_ptr<StatusBoard> board_;
  const ReadFunction read_;
  const bool may_idle_;  // the thread can come back from idle priority
  Governor governor_;
  std::atomic<int> unhindered_{0};
  double next_reading_ = 0;
  bool measuring_ = false;
  bool spare_time_ = false;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_PACE_H_
