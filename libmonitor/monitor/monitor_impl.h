#ifndef PTQWATCH_MONITOR_MONITOR_IMPL_H_
#define PTQWATCH_MONITOR_MONITOR_IMPL_H_

#include <atomic>
#include <memory>
#include <optional>

#include "base/worker.h"
#include "monitor/monitor_core.h"
#include "trainer/lr_tracker.h"
#include "trainer/schedule.h"

namespace ptqwatch {

/// The trainer's side. Without a core it is inert.
class Monitor::Impl {
 public:
  std::shared_ptr<internal::MonitorCore> core;
  std::unique_ptr<internal::Worker> worker;
  std::atomic<bool> stopped{false};

  // Touched by OnStep and Finish only.
  internal::LrTracker lr;
  internal::Schedule schedule;
  std::optional<StepInfo> last;
  std::optional<int64_t> last_taken_step;
  int64_t taken = 0;
  internal::RateLimitedLog skipped;

  internal::FillOutcome Take(SnapshotTrigger trigger) noexcept;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_MONITOR_MONITOR_IMPL_H_
