#ifndef PTQWATCH_COMMON_MONITOR_SETUP_H_
#define PTQWATCH_COMMON_MONITOR_SETUP_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "final_slice.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/subject.h"
#include "run_summary.h"
#include "stop_signal.h"
#include "trainer_flags.h"

namespace ptqwatch::examples {

/// The monitor options that the flags ask for, in a run of `steps` steps. REQUIRES: the flags were
/// parsed, so their values are valid.
MonitorOptions MakeMonitorOptions(const TrainerFlags& flags, int64_t steps);

/// A training run with a monitor that serves HTTP and gRPC, keeps a journal where a run directory
/// is given, and prints its snapshots. One thread's own.
class WatchedRun {
 public:
  /// Creates the monitor and prints "metrics http://HOST:PORT/metrics" and "grpc HOST:PORT". A
  /// failure names the option at fault where one is.
  static absl::StatusOr<std::unique_ptr<WatchedRun>> Start(std::unique_ptr<Subject> subject,
                                                           const TrainerFlags& flags,
                                                           int64_t steps);

  void OnStep(const StepInfo& info) noexcept { monitor_->OnStep(info); }
  /// Has the step of the last OnStep measured and waits for it. Returns early when a signal comes,
  /// and with a warning after five minutes. May be called in the middle of a run; tells the user of
  /// a longer wait where `announce`.
  void Finish(const StopSignal& stop, bool announce = true);
  /// "slice PATH", where --slice asked for one; a warning where it failed.
  void PrintSlice() const;
  void PrintSummary() const;
  /// Goes on serving for so long, or until a signal comes.
  void Linger(double seconds, const StopSignal& stop) const;
  void Stop();

 private:
  WatchedRun() = default;

  std::string address_;
  FinalSlice slice_;
  RunSummary summary_;
  std::unique_ptr<Monitor> monitor_;  // last: its exporters use the summary
};

/// What a trainer says of a run when its loop has ended.
struct RunResult {
  int64_t steps = 0;
  double seconds = 0;  ///< of the loop alone
  absl::FunctionRef<std::string()> weights_sha256;
  absl::FunctionRef<double()> validation_loss;  ///< not asked after a signal
};

/// Ends a run: has the last step measured unless a signal came, prints the result and the summary,
/// lingers and stops. `run` is null without a monitor. Returns the exit code.
int EndRun(const RunResult& result, double linger_seconds, const StopSignal& stop, WatchedRun* run);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_MONITOR_SETUP_H_
