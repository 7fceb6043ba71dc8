#ifndef PTQWATCH_TOOLS_PTQWATCH_COMMANDS_H_
#define PTQWATCH_TOOLS_PTQWATCH_COMMANDS_H_

#include "flags.h"
#include "follower.h"
#include "ptqwatch/execution_context.h"
#include "terminal.h"

namespace ptqwatch::internal {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

/// Each carries a command out and returns the exit code of the process: 0 or, after a notice on
/// standard error, kExitFailed. Output that nobody reads any more ends them with 0.
///
/// `pace` gives RunWatch its waits (a test wants none); what the flags say overrides the rest of
/// it.
int RunWatch(const WatchFlags& flags, Clock* clock, Terminal* terminal, FollowOptions pace = {});
int RunStatus(const StatusFlags& flags, Clock* clock, Terminal* terminal);
int RunSnapshot(const SnapshotFlags& flags, Clock* clock, Terminal* terminal,
                FollowOptions pace = {});
int RunSlice(const SliceFlags& flags, Clock* clock, Terminal* terminal, FollowOptions pace = {});
int RunCommand(const Command& command, Clock* clock, Terminal* terminal);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_COMMANDS_H_
