#ifndef PTQWATCH_MONITOR_SERVER_PROGRAM_H_
#define PTQWATCH_MONITOR_SERVER_PROGRAM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/serve_options.h"

namespace ptqwatch::internal {

/// Returns the absolute path of the program `ptqwatch`, found as ServeOptions::program says. Errors
/// say what to install or set: NotFound if there is no such program; FailedPrecondition if it must
/// not be run (not executable, writable by others, or this process has more rights than its
/// caller).
absl::StatusOr<std::string> FindServerProgram(const std::string& wanted);

/// Why this process leaves serving to another one: it is not the first of its job on this machine,
/// by LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID or SLURM_LOCALID. Empty if it is the
/// first or belongs to no known job.
std::string WhyAnotherServes();

/// The server's environment, as "NAME=VALUE".
std::vector<std::string> ServerEnvironment(const ServeOptions& options);

/// The server's arguments, beginning with "serve". The server watches for the end of the process
/// `trainer`. With `remove_run_dir` it removes the directory when it ends.
std::vector<std::string> ServerArguments(const ServeOptions& options, const std::string& run_dir,
                                         int trainer, bool remove_run_dir);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_SERVER_PROGRAM_H_
