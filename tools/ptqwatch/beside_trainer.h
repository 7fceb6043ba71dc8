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

/// How a server behaves that a trainer has started (MonitorOptions::serve).
struct BesideTrainer {
  pid_t trainer = 0;  ///< 0: nobody has started it but its user
  int64_t linger_seconds = 0;
  bool remove_run_dir = false;
};

/// Leaves the trainer: returns in a process that is nobody's child, in a session of its own, with
/// a low priority and at most `max_memory` bytes of data. Only before there are threads. The error
/// names the call that failed.
absl::Status LeaveTrainer(int64_t max_memory);

/// Tells the trainer. An error if it does not listen any more.
absl::Status SayHello(const ServerHello& hello);

/// Returns when this server has nothing more to show: a signal has come, the trainer has ended or
/// its monitor has stopped `linger_seconds` ago, or another process has taken the run directory
/// over since.
void WaitForEndOfRun(const BesideTrainer& options, const std::string& run_dir,
                     const EndSignals& signals);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_BESIDE_TRAINER_H_
