#ifndef PTQWATCH_SERVE_FOLLOWED_RUN_H_
#define PTQWATCH_SERVE_FOLLOWED_RUN_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "base/thread.h"
#include "feed/served_runs.h"
#include "ptqwatch/run_source.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// Follows a run directory on a thread of its own, and shows its run among those of the servers: at
/// once as its status file and its newest report say, and open to clients once its past has been
/// read. If another run
/// takes the directory, that one is shown instead.
class FollowedRun final : public WatchListener {
 public:
  /// Makes the run to show; its commands go to the control.
  using MakeRun = std::function<std::shared_ptr<ServedRun>(Control*)>;

  /// `runs` and what `make` uses must outlive this. ResourceExhausted if there is no thread.
  static absl::StatusOr<std::unique_ptr<FollowedRun>> Start(const std::string& run_dir,
                                                            MakeRun make, ServedRuns* runs);
  ~FollowedRun() override { Stop(); }

  /// Makes the thread end soon; returns at once.
  void BeginStop() { stopping_ = true; }
  /// Joins the thread; the run is shown no longer. Idempotent.
  void Stop();

  bool OnReport(const AnalyzedReport& report, int64_t missed) override;
  void OnEvent(const Event& event) override;
  void OnStatus(const RunStatus& status) override;
  void OnNewest(const AnalyzedReport& report) override;
  void OnCaughtUp() override;
  void OnTrouble(std::string_view text) override { trouble_(Severity::kWarning, text); }
  bool OnTick(bool connected) override;

 private:
  FollowedRun(const std::string& run_dir, MakeRun make, ServedRuns* runs);
  void Follow();
  void BeginAnew();
  void ShowOnceKnown();

  const std::unique_ptr<RunSource> source_;
  const MakeRun make_;
  ServedRuns* const runs_;
  std::atomic<bool> stopping_{false};
  RateLimitedLog trouble_;
  // The thread's, while it runs.
  std::shared_ptr<ServedRun> run_;
  RunStatus status_;                              // the newest
  std::shared_ptr<const AnalyzedReport> newest_;  // until the past has been read
  std::string run_id_;                            // of the newest report; empty before the first
  bool known_ = false;                            // something was seen of the run
  bool caught_up_ = false;
  bool shown_ = false;  // as it is now
  bool open_ = false;   // with its past
  Thread thread_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SERVE_FOLLOWED_RUN_H_
