#ifndef PTQWATCH_HANDOVER_REMOTE_TRAINER_H_
#define PTQWATCH_HANDOVER_REMOTE_TRAINER_H_

#include <sys/types.h>

#include <functional>
#include <string>

#include "handover/staging.h"
#include "ptqwatch/event.h"
#include "ptqwatch/status.h"
#include "ptqwatch/step_info.h"
#include "trainer/lr_tracker.h"
#include "trainer/step_outcome.h"
#include "trainer/trainer_switches.h"

namespace ptqwatch::internal {

/// A trainer in another process, as the monitor sees it (Subject::remote_trainer).
///
/// The trainer's process runs the same TrainerSide as a monitor in one process. It decides which
/// snapshots to take and copies the weights into a slot in shared memory. The monitor decides
/// nothing again: for each step it receives the StepInfo and the StepOutcome, repeats what the
/// outcome says (TrainerSide::Replay), and takes the snapshot from that slot, with the header that
/// its own LrTracker gives. Both trackers see the same steps, so reports are the same bits as in
/// one process.
struct RemoteTrainer {
  /// Access to a started monitor. The functions may be called until Monitor::Stop, on one thread
  /// each.
  struct Monitor {
    /// Repeats a step. Steps must come in order.
    std::function<void(const StepInfo& info, const StepOutcome& outcome)> replay;
    /// Seconds since a measurement in progress last gave a sign of life; 0 without a measurement.
    std::function<double()> silence;
    std::function<void(Event::Kind kind, Severity severity, std::string message)> announce;
    /// Its CPU time is charged to the monitor's budget. `process` 0: it does not serve.
    std::function<void(const ServerStatus& server, pid_t process)> set_server;
    /// The learning rate's state that an earlier attempt left.
    LrTracker lr;
  };

  pid_t process = 0;
  TrainerSwitches* switches = nullptr;     ///< in shared memory
  SharedSlotState* slot = nullptr;         ///< in shared memory; the live tensors are the slot's
  std::function<FillOutcome()> take_last;  ///< makes the trainer fill the slot, and waits for it
  std::function<void(Monitor)> connect;    ///< called once, when the monitor has started
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HANDOVER_REMOTE_TRAINER_H_
