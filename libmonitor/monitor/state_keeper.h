#ifndef PTQWATCH_MONITOR_STATE_KEEPER_H_
#define PTQWATCH_MONITOR_STATE_KEEPER_H_

#include <memory>
#include <string>

#include "base/report_queue.h"
#include "journal/run_lock.h"
#include "probes/probe_state.h"
#include "ptqwatch/execution_context.h"
#include "publish/status_board.h"

namespace ptqwatch::internal {

/// Writes the newest probe state to the run directory at most once a minute and at the end. Uses
/// its own thread, because the state may be gigabytes and the disk may hang. That thread touches no
/// device. Not thread-safe.
class StateKeeper {
 public:
  struct Options {
    std::string run_dir;  ///< empty: nothing is written
    std::string run_id;
    std::string fingerprint;
    std::shared_ptr<RunLock> lock;       ///< held until the last write is over
    std::shared_ptr<ByteBudget> bytes;   ///< pays for a state that is being written
    std::shared_ptr<StatusBoard> board;  ///< counts failed writes
    Clock* clock = nullptr;
  };
  explicit StateKeeper(Options options);
  ~StateKeeper() { End(); }

  /// Takes the state after a report. `now` skips the wait for the minute. When a write is due, it
  /// copies vectors on a device to the host, in pieces between which it checks the context; the
  /// copy runs on the calling thread's current stream.
  void Offer(const ProbeState& state, bool now, const ExecutionContext& context);
  /// Waits for the current write, then writes the last state offered if it is not written yet.
  /// Gives up on a disk that does not answer for ten seconds. Call it on the thread that calls
  /// Offer. Idempotent.
  void End();

 private:
  struct Kept;
  struct Writer;
  void Push(const ExecutionContext& context);

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
