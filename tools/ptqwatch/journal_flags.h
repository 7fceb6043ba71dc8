#ifndef PTQWATCH_TOOLS_PTQWATCH_JOURNAL_FLAGS_H_
#define PTQWATCH_TOOLS_PTQWATCH_JOURNAL_FLAGS_H_

#include "CLI/CLI.hpp"
#include "flags.h"

namespace ptqwatch::internal {

// Flags of the commands that read a journal and need no run.
void AddReplay(CLI::App* app, ReplayFlags* flags);
void AddHistory(CLI::App* app, HistoryFlags* flags);
void AddLayers(CLI::App* app, LayersFlags* flags);
void AddReport(CLI::App* app, ReportFlags* flags);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_JOURNAL_FLAGS_H_
