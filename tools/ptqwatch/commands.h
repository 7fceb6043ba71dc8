#ifndef PTQWATCH_TOOLS_PTQWATCH_COMMANDS_H_
#define PTQWATCH_TOOLS_PTQWATCH_COMMANDS_H_

#include "flags.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/run_source.h"
#include "terminal.h"

namespace ptqwatch::internal {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

/// Each function runs a command and returns the exit code of the process: 0, or kExitFailed after a
/// notice on standard error. A command whose output is no longer read ends with 0.
///
/// `pace` gives the waits between attempts, which tests shorten; the flags override its other
/// members.
int RunWatch(const WatchFlags& flags, Clock* clock, Terminal* terminal, WatchOptions pace = {});
int RunStatusCommand(const StatusFlags& flags, Clock* clock, Terminal* terminal);
int RunSnapshot(const SnapshotFlags& flags, Clock* clock, Terminal* terminal,
                WatchOptions pace = {});
int RunSlice(const SliceFlags& flags, Clock* clock, Terminal* terminal, WatchOptions pace = {});
int RunCooldown(const CooldownFlags& flags, Clock* clock, Terminal* terminal,
                WatchOptions pace = {});
int RunPause(const PauseFlags& flags, Terminal* terminal);
int RunResume(const ResumeFlags& flags, Terminal* terminal);
int RunEvery(const EveryFlags& flags, Terminal* terminal);
/// Returns on SIGINT or SIGTERM.
int RunServe(const ServeFlags& flags, Terminal* terminal);
int RunReplay(const ReplayFlags& flags, Terminal* terminal);
int RunHistory(const HistoryFlags& flags, Terminal* terminal);
int RunLayers(const LayersFlags& flags, Terminal* terminal);
int RunReport(const ReportFlags& flags, Clock* clock, Terminal* terminal);
/// Becomes the program ptqwatch-trajectory; returns only if that fails.
int RunTrajectory(const TrajectoryFlags& flags, Terminal* terminal);
int RunCommand(Invocation invocation, Clock* clock, Terminal* terminal);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_COMMANDS_H_
