#ifndef PTQWATCH_TOOLS_PTQWATCH_SUBCOMMAND_FLAGS_H_
#define PTQWATCH_TOOLS_PTQWATCH_SUBCOMMAND_FLAGS_H_

#include "CLI/CLI.hpp"
#include "flags.h"

namespace ptqwatch::internal {

// Flags of the commands that follow or control a run.
void AddTarget(CLI::App* app, Target* target);
void AddWatch(CLI::App* app, WatchFlags* flags);
void AddStatus(CLI::App* app, StatusFlags* flags);
void AddSnapshot(CLI::App* app, SnapshotFlags* flags);
void AddSlice(CLI::App* app, SliceFlags* flags);
void AddCooldown(CLI::App* app, CooldownFlags* flags);
void AddEvery(CLI::App* app, EveryFlags* flags);

// Flags of the commands that read a journal and need no run.
void AddReplay(CLI::App* app, ReplayFlags* flags);
void AddHistory(CLI::App* app, HistoryFlags* flags);
void AddLayers(CLI::App* app, LayersFlags* flags);
void AddReport(CLI::App* app, ReportFlags* flags);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_SUBCOMMAND_FLAGS_H_
