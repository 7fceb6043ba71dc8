#ifndef PTQWATCH_MONITOR_STATE_KEEPER_H_
#define PTQWATCH_MONITOR_STATE_KEEPER_H_

#include <memory>
#include <string>

#include "base/report_queue.h"
#include "journal/run_lock.h"
#include "monitor/status_board.h"
#include "probes/probe_state.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// Writes the newest probe state to the run directory, on a thread of its own: it may be gigabytes,
/// and the disk may hang. At most once a minute, and at the end. One thread at a time.
class StateKeeper {
 public:
  struct Options {
    std::string run_dir;  ///< empty: nothing is kept
    std::string run_id;
    std::string fingerprint;
    std::shared_ptr<RunLock> lock;       ///< held until nothing more will be written
    std::shared_ptr<ByteBudget> bytes;   ///< of which a state that is being written holds its share
    std::shared_ptr<StatusBoard> board;  ///< counts what could not be written
    Clock* clock = nullptr;
  };
  explicit StateKeeper(Options options);
  ~StateKeeper() { End(); }

  /// The state after a report. Returns at once. `now`: without waiting for the minute.
  void Offer(const ProbeState& state, bool now);
  /// Waits for the write under way, and writes what was offered last unless it is written. A disk
  /// that does not answer for ten seconds is given up. Idempotent.
  void End();

 private:
  struct Kept;
  struct Writer;
  void Push();

  const std::shared_ptr<Writer> writer_;
  const std::shared_ptr<ByteBudget> bytes_;
  Clock* const clock_;
  std::unique_ptr<ReportQueue<std::shared_ptr<const Kept>>> queue_;
  ProbeState newest_;
  bool unwritten_ = false;
  bool ended_ = false;
  double next_write_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_STATE_KEEPER_H_
