#ifndef PTQWATCH_OFFLINE_FOLLOW_RUN_H_
#define PTQWATCH_OFFLINE_FOLLOW_RUN_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/control.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/exporter.h"

namespace ptqwatch {

/// Follows a run by its run directory, from another process, and hands exporters what the run's
/// monitor would: every report and event of the journal, from the first one on, and the status.
/// It may begin before the run, during it or after it, and reads only.
///
/// A run that shows no sign of life for 15 seconds and has not said that it stopped is `degraded`,
/// with a reason that begins with kNoSignOfLife. Where another run begins in the same directory,
/// the exporters of the former are stopped and new ones made.
///
/// For one thread. The exporters read the status on threads of their own.
class PTQWATCH_EXPORT RunFollower {
 public:
  /// Makes the exporters of a run, which get its past by OnReport and OnEvent before their Start.
  using MakeExporters = std::function<absl::StatusOr<std::vector<std::unique_ptr<Exporter>>>()>;

  /// `run_dir` need not exist yet. The exporters get RunSource::Do of the directory for commands.
  static std::unique_ptr<RunFollower> Create(std::string run_dir, MakeExporters exporters,
                                             Clock* clock = Clock::Real());
  virtual ~RunFollower() = default;

  /// Reads what is new, up to some megabytes. Returns whether there is more to read at once; call
  /// it again after a quarter of a second otherwise. What of the directory cannot be read now, and
  /// exporters that cannot be started, are said to the log and tried again.
  virtual bool Poll() = 0;
  /// Whether the past has been read and the exporters were started.
  virtual bool following() const = 0;
  /// Stops the exporters; idempotent.
  virtual void Stop(std::chrono::milliseconds deadline) = 0;
};

inline constexpr std::string_view kNoSignOfLife = "no sign of life";

/// Whether a run has begun in this directory: it has a journal or a status file.
PTQWATCH_EXPORT bool HoldsRun(const std::string& run_dir);

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_FOLLOW_RUN_H_
