#ifndef PTQWATCH_JOURNAL_RUN_ENDPOINT_H_
#define PTQWATCH_JOURNAL_RUN_ENDPOINT_H_

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <memory>

#include "journal/run_lock.h"
#include "ptqwatch/exporter.h"

namespace ptqwatch::internal {

/// Publishes a run to other processes by two files in RunInfo::run_dir, beside its journal: a
/// status file, replaced every `interval`, and a socket that takes commands from the directory's
/// owner (see RunControl). Monitor::Create adds it if run_dir is set.
///
/// Works on a separate thread, which holds `lock` as long as it lives. Serves one client at a time,
/// for at most a second. If the file system has no sockets, the run takes no commands and the log
/// says so. `process` is the trainer's process for RunStatus::process_id.
std::unique_ptr<Exporter> MakeRunEndpoint(
    std::shared_ptr<RunLock> lock,
    std::chrono::milliseconds interval = std::chrono::milliseconds(1000), pid_t process = getpid());

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_RUN_ENDPOINT_H_
