#ifndef PTQWATCH_MONITOR_CONTROL_QUEUE_H_
#define PTQWATCH_MONITOR_CONTROL_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "monitor/status_board.h"
#include "probes/cooldown_tracker.h"
#include "probes/slice_tracker.h"
#include "ptqwatch/control.h"
#include "trainer/trainer_switches.h"

namespace ptqwatch::internal {

/// Commands on their way to the monitor thread. Any thread adds, the monitor thread carries out. Of
/// several commands of one kind only the newest is kept, so the queue is never longer than there
/// are kinds.
class ControlQueue final : public Control {
 public:
  /// `slices` and `cooldowns` accept or refuse requests for them, `board` counts the snapshots
  /// taken so far; all must outlive the queue. What is null is refused. While `nothing_to_do`,
  /// every probe is switched off.
  explicit ControlQueue(SliceTracker* slices = nullptr, const StatusBoard* board = nullptr,
                        const std::atomic<bool>* nothing_to_do = nullptr,
                        CooldownTracker* cooldowns = nullptr)
      : slices_(slices), board_(board), nothing_to_do_(nothing_to_do), cooldowns_(cooldowns) {}

  /// From now on every command calls `wake`, and so does this call if one is waiting. `wake` must
  /// return at once and not call back.
  void Open(std::function<void()> wake);
  /// From now on commands are refused with `why`; `wake` is not called any more once this returns.
  void Close(std::string why = "the monitor has stopped");

  absl::StatusOr<int64_t> Do(const Command& command) override;

  /// Monitor thread: carries waiting commands out, in the order in which they came. `slice` becomes
  /// the newest one that was asked for.
  void CarryOut(TrainerSwitches& switches, std::optional<AcceptedSlice>& slice);

 private:
  struct Accepted {
    Command command;
    int64_t number = 0;
    int64_t snapshots_taken = 0;
  };
  // Checks a command before it is queued; the result is the one of Do.
  absl::StatusOr<int64_t> Accept(const Command& command);
  absl::StatusOr<int64_t> AcceptCooldown(const StartCooldown& request);
  absl::Status CheckMeasuring() const;
  absl::Status Add(Accepted accepted);

  SliceTracker* const slices_;
  const StatusBoard* const board_;
  const std::atomic<bool>* const nothing_to_do_;
  CooldownTracker* const cooldowns_;
  Mutex mutex_;
  std::optional<std::string> closed_ ABSL_GUARDED_BY(mutex_);  // why
  std::function<void()> wake_ ABSL_GUARDED_BY(mutex_);
  std::vector<Accepted> commands_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_CONTROL_QUEUE_H_
