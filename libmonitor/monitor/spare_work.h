#ifndef PTQWATCH_MONITOR_SPARE_WORK_H_
#define PTQWATCH_MONITOR_SPARE_WORK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "monitor/publisher.h"
#include "monitor/work_budget.h"
#include "probes/probe_suite.h"
#include "ptqwatch/event.h"
#include "ptqwatch/execution_context.h"
#include "trainer/staging.h"

namespace ptqwatch::internal {

/// What the monitor thread does between snapshots: the shadow cooldown under way, where a core is
/// spare. For the monitor thread.
class SpareWork {
 public:
  struct Parts {
    std::shared_ptr<ProbeSuite> suite;
    std::shared_ptr<WorkBudget> budget;
    std::shared_ptr<Staging> staging;
    ExecutionContext context;
    /// Called between optimizer steps: lets the caller carry out commands.
    std::function<void()> poll;
    std::shared_ptr<Publisher> publisher;
  };
  explicit SpareWork(Parts parts);

  bool under_way() const { return cooldown_ != nullptr && cooldown_->under_way(); }
  /// Works until a snapshot is there, nothing is left, or no core is spare any more.
  void Run() noexcept;
  /// Training has ended: nothing is to come that a cooldown could predict.
  void End();

 private:
  void Work();
  void Announce(Event::Kind kind, Severity severity, std::string message) const;

  const Parts parts_;
  CooldownProbe* const cooldown_;  // null: there are none
  bool waits_ = false;             // for a spare core
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_SPARE_WORK_H_
