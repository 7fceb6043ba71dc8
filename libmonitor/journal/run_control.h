#ifndef PTQWATCH_JOURNAL_RUN_CONTROL_H_
#define PTQWATCH_JOURNAL_RUN_CONTROL_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "ptqwatch/control.h"

namespace ptqwatch::internal {

inline constexpr char kControlSocketName[] = "control.sock";

/// Sends commands to the run that uses a run directory, in another process of this machine. Each
/// call opens a connection and takes at most two seconds. In addition to the errors of Control:
/// Unavailable if no run answers, with the name of its host if that is another one;
/// PermissionDenied for another user's run directory. Thread-safe.
class RunControl final : public Control {
 public:
  explicit RunControl(std::string run_dir) : run_dir_(std::move(run_dir)) {}

  absl::StatusOr<int64_t> Do(const Command& command) override;

 private:
  const std::string run_dir_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_RUN_CONTROL_H_
