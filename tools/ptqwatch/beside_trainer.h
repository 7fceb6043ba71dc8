#ifndef PTQWATCH_TOOLS_PTQWATCH_BESIDE_TRAINER_H_
#define PTQWATCH_TOOLS_PTQWATCH_BESIDE_TRAINER_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/server_hello.h"
#include "end_signals.h"

namespace ptqwatch::internal {

/// Options of a server started by a trainer (MonitorOptions::serve).
struct BesideTrainer {
  pid_t trainer = 0;  ///< 0: started by a user, not by a trainer
  int64_t linger_seconds = 0;
  bool remove_run_dir = false;
  bool of_rank = false;  ///< serve the run of all ranks, whose directory is above the rank's own
};

/// Detaches from the trainer. Forks, and returns in a process without a parent, in its own session,
/// with low priority and at most `max_memory` bytes of data. Call it before starting threads.
/// Errors name the failed call.
absl::Status LeaveTrainer(int64_t max_memory);

/// Sends the hello to the trainer. Fails if the trainer is no longer listening.
absl::Status SayHello(const ServerHello& hello);

/// Returns when the server has nothing more to show: after a signal, `linger_seconds` after the
/// trainer ended or its monitor stopped, or when the trainer has ended and another process uses the
/// run directory.
void WaitForEndOfRun(const BesideTrainer& options, const std::string& run_dir,
                     const EndSignals& signals);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_BESIDE_TRAINER_H_
