#ifndef PTQWATCH_SERVE_RUN_FOLLOWER_H_
#define PTQWATCH_SERVE_RUN_FOLLOWER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "base/thread.h"
#include "feed/served_runs.h"
#include "ptqwatch/run_source.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// Follows a run directory on its own thread and adds its run to the served runs: first with its
/// status file and newest report, then open to clients once its journal has been read. If another
/// run takes the directory, shows that run instead.
class RunFollower final : public WatchListener {
 public:
  /// Makes the run to show, which sends its commands to the control.
  using MakeRun = std::function<std::shared_ptr<ServedRun>(Control*)>;

  /// `runs` and everything that `make` uses must outlive this object. ResourceExhausted if the
  /// thread cannot be started.
  static absl::StatusOr<std::unique_ptr<RunFollower>> Start(const std::string& run_dir,
                                                            MakeRun make, ServedRuns* runs);
  ~RunFollower() override { Stop(); }

  /// Tells the thread to end; returns at once.
  void BeginStop() { stopping_ = true; }
  /// Joins the thread and removes the run. Idempotent.
  void Stop();

  bool OnReport(const AnalyzedReport& report, int64_t missed) override;
  void OnEvent(const Event& event) override;
  void OnStatus(const RunStatus& status) override;
  void OnNewest(const AnalyzedReport& report) override;
  void OnCaughtUp() override;
  void OnTrouble(std::string_view text) override { trouble_(Severity::kWarning, text); }
  bool OnTick(bool connected) override;

 private:
  RunFollower(const std::string& run_dir, MakeRun make, ServedRuns* runs);
  void Follow();
  void BeginAnew();
  void ShowOnceKnown();

  const std::unique_ptr<RunSource> source_;
  const MakeRun make_;
  ServedRuns* const runs_;
  std::atomic<bool> stopping_{false};
  RateLimitedLog trouble_;
  // Used by the thread only, while it runs.
  std::shared_ptr<ServedRun> run_;
  RunStatus status_;                              // the newest
  std::shared_ptr<const AnalyzedReport> newest_;  // until the journal has been read
  std::string run_id_;                            // of the newest report; empty before the first
  std::pair<int, int64_t> place_;                 // attempt and sequence of the newest report
  bool known_ = false;                            // something of the run was read
  bool caught_up_ = false;
  bool shown_ = false;  // added to runs_
  bool open_ = false;   // its reports are visible to clients
  Thread thread_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SERVE_RUN_FOLLOWER_H_
