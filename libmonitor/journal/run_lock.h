#ifndef PTQWATCH_JOURNAL_RUN_LOCK_H_
#define PTQWATCH_JOURNAL_RUN_LOCK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/process_end.h"

namespace ptqwatch::internal {

/// Reserves a run directory for one monitor as long as this object lives. A child of fork() does
/// not hold the lock.
class RunLock {
 public:
  /// Creates `run_dir`, accessible only to its owner, if it is missing, locks it, and removes files
  /// left incomplete by a crash. FailedPrecondition if another monitor has it or it belongs to
  /// another user; otherwise the status of errno, with the path.
  static absl::StatusOr<std::unique_ptr<RunLock>> Take(const std::string& run_dir);
  /// Whether a monitor on this machine has the directory, as far as /proc/locks shows. Takes no
  /// lock, so it keeps no monitor from starting.
  static bool IsHeld(const std::string& run_dir);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  explicit RunLock(int file);
  const ProcessMark process_;
  const int file_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_RUN_LOCK_H_
