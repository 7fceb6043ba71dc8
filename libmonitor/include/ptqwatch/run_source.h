#ifndef PTQWATCH_RUN_SOURCE_H_
#define PTQWATCH_RUN_SOURCE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/control.h"
#include "ptqwatch/event.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"
#include "ptqwatch/status.h"

namespace ptqwatch {

struct ReportQuery {
  int64_t after_sequence = 0;   ///< only reports with a larger sequence
  int64_t limit = 0;            ///< at most this many, oldest first; 0: all
  bool without_layers = false;  ///< omits the per-layer lists, most of a report's bytes
};

struct WatchOptions {
  /// Only reports with a larger sequence. 0: all reports; unset: only new ones.
  std::optional<int64_t> after_sequence = 0;
  bool without_layers = false;
  /// Return once all reports that exist now have been delivered.
  bool until_now = false;
  /// Return when the monitor of the run stops; otherwise wait for the run to resume.
  bool exit_when_done = false;
  /// How long a server may be unreachable, or a directory may have no run, before Watch fails.
  /// Unset: for a server, ten seconds before its first answer, then no limit, or a minute with
  /// exit_when_done; for a directory, two seconds.
  std::optional<std::chrono::nanoseconds> give_up_after = {};
  /// Deliver the status at this interval after the first one; unset: only the first one.
  std::optional<std::chrono::milliseconds> status_every = {};
  /// Longest time between calls of OnTick.
  std::chrono::milliseconds tick{1000};
  /// Waits between attempts to reach a server. The wait doubles from the first to the longest.
  std::chrono::milliseconds first_backoff{500};
  std::chrono::milliseconds longest_backoff{10'000};
};

/// Receives the results of Watch, on the thread that called it.
class PTQWATCH_EXPORT WatchListener {
 public:
  virtual ~WatchListener() = default;
  /// Called for each report; never twice for the same one (run_id, attempt, branch, rank,
  /// sequence). `missed` is the number of reports lost before it. Return false to end Watch.
  virtual bool OnReport(const AnalyzedReport& report, int64_t missed) = 0;
  virtual void OnEvent(const Event&) {}
  virtual void OnStatus(const RunStatus&) {}
  /// A message of one line for the user: the connection was lost or restored, or another run took
  /// over.
  virtual void OnNotice(std::string_view) {}
  /// A file of the run cannot be read; Watch tries again. Calls OnNotice by default.
  virtual void OnTrouble(std::string_view text) { OnNotice(text); }
  /// For a run directory: called with its newest report before the older ones, which take longer to
  /// read.
  virtual void OnNewest(const AnalyzedReport&) {}
  /// For a run directory: called once, after all reports and events written before Watch were
  /// delivered.
  virtual void OnCaughtUp() {}
  /// Called at least once per tick. Return false to end Watch.
  virtual bool OnTick(bool /*connected*/) { return true; }
};

/// A run in another process: a run directory (OpenRunDirectory) or a server (OpenRemoteRun in
/// ptqwatch/client.h). Thread-safe. Errors are one printable line that names the place.
class PTQWATCH_EXPORT RunSource : public Control {
 public:
  /// The directory or the address, for messages.
  virtual std::string place() const = 0;
  virtual absl::StatusOr<RunStatus> Status() = 0;
  /// All runs at this place, sorted by name; a directory has one.
  virtual absl::StatusOr<std::vector<RunStatus>> Runs() = 0;
  /// Returns reports, oldest first.
  virtual absl::StatusOr<std::vector<AnalyzedReport>> Reports(const ReportQuery& query = {}) = 0;
  /// Passes reports and events to the listener, on the calling thread, until the listener or an
  /// option ends it. OK in that case.
  virtual absl::Status Watch(const WatchOptions& options, WatchListener* listener) = 0;
};

/// Returns whether the directory, or that of a rank in it, has a journal or a status file, that is,
/// whether a run has begun there.
PTQWATCH_EXPORT bool HoldsRun(const std::string& run_dir);

/// Returns the name of the run in a directory: the last part of its path.
PTQWATCH_EXPORT std::string RunNameOf(const std::string& run_dir);

/// Opens the past, present or future run of `run_dir` through the files of its monitor. Opens no
/// socket except the run's own, to send a command. Cost: Reports and Watch read the journal from
/// the beginning.
///
/// A run that has not reported its end is `silent`, with a reason, if its status file is a minute
/// old at the first look, or does not change for 15 seconds during Watch. If another run takes over
/// the directory, only the reports of the new run follow. Status returns NotFound if no run has
/// begun. Do returns Unavailable if no run answers on this machine, and PermissionDenied if the
/// directory belongs to another user.
///
/// A run with several ranks (MonitorOptions::ranks) has a directory for each in `run_dir`. They are
/// read as one run: a report for each step, once every rank has reported it, has ended, shows no
/// sign of life, has passed the step, or has taken longer than five minutes. Measurements that a
/// rank has not reported by then have the status ProbeStatus::kOtherRank and a detail that names
/// the rank; if they come late, they are left out until the journals are read anew. Verdicts are
/// computed from the merged reports, which `sequence` counts. A command goes to every rank that
/// runs on this machine, and Do succeeds if one accepts it. Status and Do also read all journals.
///
/// The run may be on another host that shares the directory, for instance by NFS. Then Status takes
/// up to five seconds if the clocks differ by more than a minute, and Do names the host.
PTQWATCH_EXPORT std::unique_ptr<RunSource> OpenRunDirectory(std::string run_dir,
                                                            Clock* clock = Clock::Real());

}  // namespace ptqwatch

#endif  // PTQWATCH_RUN_SOURCE_H_
