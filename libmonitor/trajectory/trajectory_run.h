#ifndef PTQWATCH_TRAJECTORY_TRAJECTORY_RUN_H_
#define PTQWATCH_TRAJECTORY_TRAJECTORY_RUN_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "journal/journal_file.h"
#include "journal/run_lock.h"
#include "ptqwatch/control.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/offline/replay.h"
#include "ptqwatch/report.h"
#include "publish/publisher.h"
#include "publish/status_board.h"
#include "trajectory/checkpoint_meter.h"
#include "trajectory/trajectory_settings.h"
#include "trajectory/trajectory_unit.h"

namespace ptqwatch::internal {

/// The run directory of a trajectory: lock, journal, status file. All processes that fill it are
/// one attempt, so its journal does not show where one of them ended. It holds reports and no
/// events. For one thread, except Alive.
class TrajectoryRun {
 public:
  /// Creates the directory or continues in it. The reports there must have the same settings.
  /// FailedPrecondition (another process has the directory, other settings, a run that is no
  /// trajectory), otherwise the system's errors; all name the directory. `clock` must outlive this.
  static absl::StatusOr<std::unique_ptr<TrajectoryRun>> Open(const std::string& run_dir,
                                                             const TrajectorySettings& settings,
                                                             const ModelFacts& facts, Clock* clock);
  /// End, without its error.
  ~TrajectoryRun();

  const std::string& run_dir() const { return publisher_->run().run_dir; }
  const std::string& fingerprint() const { return publisher_->run().fingerprint; }
  /// Whether the journal has a report of this branch and step.
  bool Has(const std::string& branch, int64_t step) const;
  /// Reports of this and earlier processes, in the order of the journal. Only those added by this
  /// process have layers.
  const std::vector<AnalyzedReport>& reports() const { return reports_; }

  /// Shows in the status file that a unit is being measured.
  void Begin(const TrajectoryUnit& unit);
  /// Shows that nothing is being measured.
  void Idle() { board_.SetBusy(false, Now()); }
  /// Shows that measuring continues; thread-safe.
  void Alive();
  /// Gives the report its place in the run and its verdict, and appends it to the journal. Returns
  /// once it is on the disk. The system's errors name the journal.
  absl::StatusOr<AnalyzedReport> Add(Report report);
  /// Shows in the status file that the run is over.
  void End();

 private:
  TrajectoryRun(RunInfo run, std::shared_ptr<RunLock> lock, Clock* clock);
  absl::Status Resume(const TrajectorySettings& settings);
  double Now() const;

  class NoCommands final : public Control {
    absl::StatusOr<int64_t> Do(const Command&) override;
  };

  Clock* const clock_;
  TrainerBoard steps_;
  StatusBoard board_{&steps_};
  NoCommands no_commands_;
  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<JournalFile> journal_;
  Replay verdicts_;
  std::vector<AnalyzedReport> reports_;
  std::set<std::pair<std::string, int64_t>> measured_;  // branch, step
  int64_t sequence_ = 0;
  bool ended_ = false;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_TRAJECTORY_RUN_H_
