#ifndef PTQWATCH_PUBLISH_CONTROL_QUEUE_H_
#define PTQWATCH_PUBLISH_CONTROL_QUEUE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "handover/page.h"
#include "ptqwatch/control.h"
#include "publish/job_tracker.h"
#include "publish/status_board.h"

namespace ptqwatch::internal {

/// Commands waiting for the monitor thread. Any thread adds them; the monitor thread carries them
/// out. A command replaces a waiting one of its kind, so the length is bounded by the number of
/// kinds.
class ControlQueue final : public Control {
 public:
  /// `jobs` accept or refuse their requests; if null, the monitor is off and such requests are
  /// refused. `board` has the newest report's number, `page` the snapshots so far and whether
  /// anything is left to measure. All three must outlive the queue.
  explicit ControlQueue(JobTrackers* jobs = nullptr, const StatusBoard* board = nullptr,
                        const Page* page = nullptr)
      : jobs_(jobs), board_(board), page_(page) {}

  /// Makes every later command call `wake`; calls it at once if a command is waiting. `wake` must
  /// return at once and must not call back.
  void Open(std::function<void()> wake);
  /// Refuses later commands with the reason `why`. `wake` is not called after this returns.
  void Close(std::string why = "the monitor has stopped");

  absl::StatusOr<int64_t> Do(const Command& command) override;

  /// Monitor thread: carries out waiting commands in order of arrival.
  void CarryOut(TrainerSwitches& switches);

 private:
  // Checks a command before it is queued, and returns the result of Do.
  absl::StatusOr<int64_t> Accept(const Command& command);
  absl::StatusOr<int64_t> AcceptCooldown(const StartCooldown& request);
  absl::Status CheckMeasuring() const;
  absl::Status Add(const Command& command);

  JobTrackers* const jobs_;
  const StatusBoard* const board_;
  const Page* const page_;
  Mutex mutex_;
  std::optional<std::string> closed_ ABSL_GUARDED_BY(mutex_);  // the reason
  std::function<void()> wake_ ABSL_GUARDED_BY(mutex_);
  std::vector<Command> commands_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PUBLISH_CONTROL_QUEUE_H_
