#ifndef PTQWATCH_JOURNAL_RUN_ENDPOINT_H_
#define PTQWATCH_JOURNAL_RUN_ENDPOINT_H_

#include <chrono>
#include <memory>

#include "journal/run_lock.h"
#include "ptqwatch/exporter.h"

namespace ptqwatch::internal {

/// What other processes see of a run beside its journal, both in RunInfo::run_dir: the status file,
/// replaced every `interval`, and a socket that takes commands from the directory's owner (see
/// RunControl). Monitor::Create adds it wherever run_dir is set.
///
/// All of it happens on a thread of its own, which holds `lock` as long as it lives. One client at
/// a time is served, for a second at most. Where the file system has no sockets, the run takes no
/// commands, which the log says.
std::unique_ptr<Exporter> MakeRunEndpoint(
    std::shared_ptr<RunLock> lock,
    std::chrono::milliseconds interval = std::chrono::milliseconds(1000));

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_RUN_ENDPOINT_H_
