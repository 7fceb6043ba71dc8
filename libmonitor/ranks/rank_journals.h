#ifndef PTQWATCH_RANKS_RANK_JOURNALS_H_
#define PTQWATCH_RANKS_RANK_JOURNALS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "journal/directory_status.h"
#include "journal/journal_tail.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"
#include "ptqwatch/status.h"
#include "ranks/merged_series.h"

namespace ptqwatch::internal {

/// Reads the directories of a run's ranks as one run. Only reports of the run that the lowest rank
/// belongs to are read. Memory: a report of each rank. No file stays open. One thread at a time.
class RankJournals {
 public:
  struct Handlers {
    std::function<void(Report)> report;
    /// Without alerts, which are on the verdicts of one rank. Events common to all ranks are
    /// delivered once: a resumption, a phase, and the end, after the last report. The messages of
    /// others begin with the rank.
    std::function<void(const Event&)> event;
    std::function<void()> unreadable;
  };
  enum class Wait {
    /// Delivers a step once every rank has reported it. Ranks that are over, show no sign of life
    /// or have passed it are not waited for, others up to five minutes.
    kForRanks,
    /// Delivers the steps for which no rank has to be waited for now.
    kNotLong,
    /// Delivers all steps, whatever the ranks do.
    kNever,
  };

  /// `clock` must outlive this object.
  RankJournals(std::string run_dir, Clock* clock, Handlers handlers, Wait wait);

  /// Reads the status files; with many ranks, each every few seconds. NotFound if no rank has one;
  /// another error names the path.
  absl::Status ReadStatus();
  /// Reads up to about 200 lines and delivers the steps that are due. True if more can be read at
  /// once. An error names a rank whose journal cannot be read; the others are still read.
  absl::StatusOr<bool> ReadJournals();

  bool known() const;
  /// Whether a status that is old by another host's clock may still belong to a live run.
  bool undecided() const;
  /// Leaves out ranks that are left over from a time with more of them.
  RunStatus status() const;

 private:
  struct Source {
    Source(int64_t number, const std::string& directory, Clock* clock, LineHandlers handlers);
    const int64_t rank;
    const std::string run_dir;
    DirectoryStatus status;
    JournalTail tail;
    std::string run_id;                              // of its status file; empty if unknown
    std::optional<std::chrono::nanoseconds> looked;  // when its status file was read
    std::chrono::nanoseconds grown{0};               // when its journal last had a new line
    bool at_end = false;
    bool failing = false;        // its journal could not be read
    std::optional<Report> held;  // of a run that has not begun yet
    // Place of its newest report.
    int64_t sequence = 0;
    int attempt = 0;
    std::optional<int64_t> step;
  };

  void FindRanks();
  void FindRun();
  void BeginRun(const std::string& run_id);
  void OnReport(Source& source, Report report);
  void OnEvent(const Source& source, Event event);
  absl::StatusOr<bool> ReadLine(Source& source);
  bool AnyRuns() const;
  bool MayReport(int64_t rank, int64_t step);
  bool Awaits(const MergedSeries::Front& front);
  void Deliver();
  void DeliverEnd();

  const std::string run_dir_;
  Clock* const clock_;
  const Handlers handlers_;
  const Wait wait_;
  std::map<int64_t, std::unique_ptr<Source>> sources_;
  std::string run_id_;
  std::set<std::string> past_runs_;
  std::unique_ptr<MergedSeries> series_;
  int64_t world_ = 0;  // number of ranks of the newest step; 0: unknown
  MergedSeries::Front front_;
  std::chrono::nanoseconds front_since_{0};  // when `front_` was first seen
  std::chrono::nanoseconds world_since_{0};  // since when fronts have had as many ranks
  std::optional<Event> stopped_;             // the newest end of a rank
  int64_t diverged_events_ = 0;
  std::set<std::pair<int64_t, std::string>> seen_events_;  // steps and texts
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_RANKS_RANK_JOURNALS_H_
