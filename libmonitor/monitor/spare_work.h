#ifndef PTQWATCH_MONITOR_SPARE_WORK_H_
#define PTQWATCH_MONITOR_SPARE_WORK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "monitor/run_core.h"
#include "probes/cooldown_probe.h"
#include "ptqwatch/event.h"

namespace ptqwatch::internal {

/// What the monitor thread does between snapshots: the shadow cooldown under way, where a core is
/// spare. For the monitor thread.
class SpareWork {
 public:
  /// `poll` is called between optimizer steps: lets the caller carry out commands.
  SpareWork(RunCore* core, std::function<void()> poll)
      : core_(core), poll_(std::move(poll)), cooldown_(core->suite->cooldown()) {}

  bool under_way() const { return cooldown_ != nullptr && cooldown_->under_way(); }
  /// Works until a snapshot is there, nothing is left, or no core is spare any more.
  void Run() noexcept;
  /// Training has ended: nothing is to come that a cooldown could predict.
  void End();

 private:
  void Work();
  void Announce(Event::Kind kind, Severity severity, std::string message) const;

  RunCore* const core_;
  const std::function<void()> poll_;
  CooldownProbe* const cooldown_;  // null: there are none
  bool waits_ = false;             // for a spare core
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_SPARE_WORK_H_
