#ifndef PTQWATCH_JOURNAL_RUN_CONTROL_H_
#define PTQWATCH_JOURNAL_RUN_CONTROL_H_

#include <string>
#include <utility>

#include "journal/control_message.h"
#include "ptqwatch/control.h"

namespace ptqwatch::internal {

inline constexpr char kControlSocketName[] = "control.sock";

/// Commands to the run that uses a run directory, in another process of this machine. Each call is
/// a connection of its own and takes at most two seconds. Beside the errors of Control: Unavailable
/// where no run answers, PermissionDenied for somebody else's run directory. Thread-safe.
class RunControl final : public Control {
 public:
  explicit RunControl(std::string run_dir) : run_dir_(std::move(run_dir)) {}

  absl::Status RequestSnapshot() override;
  absl::Status Pause() override;
  absl::Status Resume() override;
  absl::Status SetEvery(int64_t steps) override;
  absl::StatusOr<int64_t> RequestSlice(const SliceRequest& request) override;
  absl::StatusOr<int64_t> RequestCooldown(const CooldownRequest& request) override;
  absl::Status CancelCooldown() override;

 private:
  ControlResponse Send(const ControlRequest& request) const;
  const std::string run_dir_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_RUN_CONTROL_H_
