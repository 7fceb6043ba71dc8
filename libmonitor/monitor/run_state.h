#ifndef PTQWATCH_MONITOR_RUN_STATE_H_
#define PTQWATCH_MONITOR_RUN_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "curvature/vector_space.h"
#include "handover/lr_tracker.h"
#include "journal/run_lock.h"
#include "probes/probe_state.h"
#include "probes/probe_state_file.h"
#include "ptqwatch/options.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// The state that this attempt of a run starts from.
struct RunState {
  std::shared_ptr<RunLock> lock = nullptr;  ///< of the run directory, if any
  std::string run_id = {};
  int attempt = 1;
  int64_t sequence = 0;                                 ///< of the newest report; 0: none yet
  std::vector<AnalyzedReport> history = {};             ///< oldest first
  int64_t unreadable_lines = 0;                         ///< of the journal; skipped
  LrTracker lr = {};                                    ///< as it was at the newest report
  std::optional<ProbeStateFile> probe_state_file = {};  ///< of this run

  /// The probes' state from the previous attempt. Empty if there is none, or if it cannot be used;
  /// the log then has the reason.
  ProbeState ReadProbeState(const std::string& fingerprint, const VectorSpace& space) const;
};

/// Locks MonitorOptions::run_dir, creating it if missing, and reads the state left by earlier
/// attempts. Call it before anything is written there. Without a run directory, the run is new.
/// Errors name the path.
absl::StatusOr<RunState> ResumeRun(const MonitorOptions& options);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_RUN_STATE_H_
