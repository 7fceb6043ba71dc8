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
#include "jobs/job_tracker.h"
#include "monitor/status_board.h"
#include "ptqwatch/control.h"
#include "trainer/trainer_switches.h"

namespace ptqwatch::internal {

/// Commands on their way to the monitor thread. Any thread adds, the monitor thread carries out. Of
/// several commands of one kind only the newest is kept, so the queue is never longer than there
/// are kinds.
class ControlQueue final : public Control {
 public:
  /// `jobs` accept or refuse requests for them; null: the monitor is off, and they are refused.
  /// `board` counts the snapshots taken so far. While `nothing_to_do`, every probe is switched off.
  /// All must outlive the queue.
  explicit ControlQueue(JobTrackers* jobs = nullptr, const StatusBoard* board = nullptr,
                        const std::atomic<bool>* nothing_to_do = nullptr)
      : jobs_(jobs), board_(board), nothing_to_do_(nothing_to_do) {}

  /// From now on every command calls `wake`, and so does this call if one is waiting. `wake` must
  /// return at once and not call back.
  void Open(std::function<void()> wake);
  /// From now on commands are refused with `why`; `wake` is not called any more once this returns.
  void Close(std::string why = "the monitor has stopped");

  absl::StatusOr<int64_t> Do(const Command& command) override;

  /// Monitor thread: carries waiting commands out, in the order in which they came.
  void CarryOut(TrainerSwitches& switches);

 private:
  // Checks a command before it is queued; the result is the one of Do.
  absl::StatusOr<int64_t> Accept(const Command& command);
  absl::StatusOr<int64_t> AcceptCooldown(const StartCooldown& request);
  absl::Status CheckMeasuring() const;
  absl::Status Add(const Command& command);

  JobTrackers* const jobs_;
  const StatusBoard* const board_;
  const std::atomic<bool>* const nothing_to_do_;
  Mutex mutex_;
  std::optional<std::string> closed_ ABSL_GUARDED_BY(mutex_);  // why
  std::function<void()> wake_ ABSL_GUARDED_BY(mutex_);
  std::vector<Command> commands_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_CONTROL_QUEUE_H_
