#ifndef PTQWATCH_CHILDREN_SERVER_PROGRAM_H_
#define PTQWATCH_CHILDREN_SERVER_PROGRAM_H_

#include <cstdint>
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

/// The run directory of a process that starts a server. The server's output goes there.
struct ServedDirectory {
  std::string run_dir;
  bool remove = false;   ///< the server removes the directory when it ends
  bool of_rank = false;  ///< the server serves the run of all ranks, which is the folder above
  /// The directory that is served.
  std::string served() const;
};

/// Why this process leaves serving to another one: it is not the first of its job on this machine,
/// by LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID or SLURM_LOCALID, or else by its
/// `rank` (0 without ranks). Empty if it is the first or belongs to no known job.
std::string WhyAnotherServes(int64_t rank);

/// The server's environment, as "NAME=VALUE".
std::vector<std::string> ServerEnvironment(const ServeOptions& options);

/// The server's arguments, beginning with "serve". The server watches for the end of the process
/// `trainer`.
std::vector<std::string> ServerArguments(const ServeOptions& options,
                                         const ServedDirectory& directory, int trainer);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CHILDREN_SERVER_PROGRAM_H_
